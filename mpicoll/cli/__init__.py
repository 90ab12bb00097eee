"""The sub-commands of `python -m mpicoll`, one file each."""
