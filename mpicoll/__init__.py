"""Collectives for arrays on GPUs, built from MPI point-to-point messages."""
