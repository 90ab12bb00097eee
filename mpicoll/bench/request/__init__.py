"""The request: the command line, the calls and the numbers that it stands for."""
