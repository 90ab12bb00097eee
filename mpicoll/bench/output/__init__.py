"""What a run prints and writes: what it ran with, the tables, and the file."""
