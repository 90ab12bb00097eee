"""MPI's surroundings: its environment, its use of device memory, waiting, and asking ranks out of band."""
