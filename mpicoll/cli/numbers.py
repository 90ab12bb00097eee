"""Numbers on the command line: ranks on hosts."""

from __future__ import annotations

from itertools import pairwise

from mpicoll.ranges import whole_numbers


def host_of_ranks(text: str, size: int) -> tuple[int, ...]:
    """Return the host of each rank, from a number of hosts or the ranks of each, such as "2" or "0-3,4-7".

    Raises:
        ValueError: the text is neither, or some rank is on no host or on two.
    """
    if text.isdecimal() and int(text):
        edges = [size * k // int(text) for k in range(int(text) + 1)]
        groups = [range(a, b) for a, b in pairwise(edges)]
    else:
        groups = [range(part[0], part[-1] + 1) for part in map(whole_numbers, text.split(","))]
    found = [[host for host, ranks in enumerate(groups) if rank in ranks] for rank in range(size)]
    if any(len(hosts) != 1 for hosts in found):
        raise ValueError(f"--hosts {text}: each of the ranks 0 to {size - 1} is on one host, as in 2 or 0-3,4-7")
    return tuple(hosts[0] for hosts in found)
