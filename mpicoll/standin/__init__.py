"""Stand-ins: communicators of mpicoll's in the place of MPI.COMM_WORLD and COMM_SELF, for programs as they are."""
