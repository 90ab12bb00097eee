"""Machines by the names that command lines take: those that ship, files, and this machine as it was measured.

`MPICOLL_TOPOLOGY=hosts=2 python -m mpicoll simulate allreduce --ranks 8 --machine here` has two hosts.  Inside them is
the model of the path host, between them the link, both of the tuning tables in force.
"""

from __future__ import annotations

import math

from mpicoll.cli.plan import load_mpi
from mpicoll.dispatch.tuning import Tuning, here
from mpicoll.schedule.topology import forced
from mpicoll.settings import settings
from mpicoll.simulate.machine import Machine, machine

#: this machine
HERE = "here"
#: help of the argument
NAMES = f"a name of `simulate machines`, a JSON file, or `{HERE}` for this one by its tuning tables"


def machine_named(name: str, ranks: int) -> Machine:
    """Return a machine by its name, or from a JSON file.

    Args:
        name: of the machine or of the file; `here` for this one.
        ranks: number of ranks, which the setting `topology` puts on hosts.
    """
    if name != HERE:
        return machine(name)
    load_mpi()
    hosts = forced(settings.topology, ranks).hosts
    layout = settings.topology.removeprefix("hosts=") if hosts > 1 else ""
    return tuned_machine(here(hosts), layout)


def tuned_machine(tuning: Tuning, layout: str = "") -> Machine:
    """Return this machine, as tables and defaults have it for host arrays.

    Args:
        tuning: the tables in force.
        layout: number of hosts, or the ranks of each, as in `simulate.network.placed`; "" for one host.
    """
    model, link = tuning.model("host"), tuning.link
    rates = {"bandwidth": model.beta}
    network: dict[str, float | str] = {"alpha": model.alpha}
    source = model.source
    if layout:
        rates |= {"net_bandwidth": link.beta, "rank_bandwidth": link.rank_beta}
        network |= {"layout": layout, "net_alpha": link.alpha}
        source += f"; between hosts {link}" + "; racks as fast as their hosts" * ("/" in layout)
    network |= {name: 1 / beta if beta else math.inf for name, beta in rates.items()}
    kind = "placed" if layout else "switch"
    return Machine(HERE, kind, network, model.extra, model.gamma, model.launch, model.call, source)
