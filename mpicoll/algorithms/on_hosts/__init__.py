"""Algorithms for ranks on several hosts: inside each host, between hosts, inside again.

*Striped*: every rank of a host takes part between hosts, each with a stripe of the vector, so that all network cards
work.  *Chained*: stripes pass along a chain of hosts.  By a *leader*: one rank of each host takes part, with all of it.
In *bundles*: each rank collects what its host has for some ranks of the others.  Hosts may have any numbers of ranks,
in any order.

Phases are algorithms of this package on some of the ranks (`schedule/embed.py`), or those that a caller names:
striped(allgather=ring).  A cost is that of the phases inside a host, with its ranks as p; what travels between hosts is
counted (`analysis/host_traffic.py`).
"""

from mpicoll.algorithms.on_hosts import bundles, chained, leader, striped  # noqa: F401  (so that they register)
