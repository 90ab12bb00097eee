"""Calls and messages that are made as one."""
