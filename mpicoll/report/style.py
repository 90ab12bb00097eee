"""The style of the report's page, on a screen and on paper."""

CSS = """
body { font: 14px/1.4 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #111; margin: 2em auto;
       max-width: 1150px; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.25em; border-bottom: 1px solid #999; margin-top: 2em; }
h3 { font-size: 1em; margin: 1em 0 0.2em; }
table { border-collapse: collapse; margin: 0.7em 0 1.4em; font-size: 0.85em; }
th, td { border: 1px solid #ccc; padding: 0.2em 0.5em; text-align: left; vertical-align: top; }
th { background: #f3f3f3; font-weight: 600; white-space: nowrap; }
caption { text-align: left; font-weight: 600; font-size: 1.15em; padding: 0.3em 0; }
.facts td { white-space: pre-wrap; overflow-wrap: anywhere; }
.winners em { color: #666; font-style: normal; font-size: 0.9em; }
.slow { color: #b00020; font-weight: 600; }
.maps { display: flex; flex-wrap: wrap; gap: 0.5em 1em; align-items: flex-start; }
svg { max-width: 100%; height: auto; }
section p { margin: 0 0 1.5em; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { font-size: 10px; max-width: none; margin: 0; padding: 0; }
  section, tr, svg, caption { break-inside: avoid; }
  section svg { height: 72mm; width: auto; }
  section p { margin: 0 0 0.5em; }
  h2, h3, caption { break-after: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""
