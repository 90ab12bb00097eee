"""The tables: of times, overlap, overhead, and where the time of a call goes."""
