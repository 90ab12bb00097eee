"""Arrays, streams and MPI: where a plan's schedule becomes messages and kernels."""
