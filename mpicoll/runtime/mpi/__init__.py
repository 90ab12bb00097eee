"""What surrounds MPI: its environment, what it can do with device memory, waiting, and asking ranks out of band."""
