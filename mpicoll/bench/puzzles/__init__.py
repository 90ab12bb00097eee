"""Puzzles of communication, measured: the pairs of ranks, the ways to all-reduce, the bandwidth of a link."""
