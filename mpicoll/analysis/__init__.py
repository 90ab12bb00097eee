"""Analysis of a schedule without running it: proofs, costs, drawings."""
