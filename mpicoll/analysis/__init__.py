"""What can be said of a schedule without running it: proofs, costs, drawings."""
