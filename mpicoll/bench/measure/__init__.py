"""Test arrays and the time of calls on them."""
