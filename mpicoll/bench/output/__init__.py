"""Output: the environment of a run, the tables, and the file."""
