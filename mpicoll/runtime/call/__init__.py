"""A call's way from its arguments to a running program, for every form."""
