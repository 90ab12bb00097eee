"""Pictures of schedules: what every rank has after every round, and what moved."""
