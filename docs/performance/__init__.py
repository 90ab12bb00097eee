"""The page docs/performance.md, made from the files in bench/results: runs, claims, tables, page."""
