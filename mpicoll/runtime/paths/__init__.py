"""The ways on which arrays travel: one file or folder each."""
