"""Machines, and the time that schedules take on them."""
