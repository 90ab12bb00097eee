"""Communicators on several hosts, which the setting `topology` makes of one: all is right, and ranks choose alike."""

import itertools

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case, forms
from mpicoll.algorithms import registry
from mpicoll.runtime.context.contexts import context_of
from mpicoll.schedule.topology import FLAT, Topology, laid_out

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
CYCLIC = ",".join("+".join(map(str, range(k, SIZE, 2))) for k in range(2) if k < SIZE)


@pytest.fixture(params=["hosts=2", "cyclic"])
def comm(request):
    with mpicoll.override(topology=CYCLIC if request.param == "cyclic" else request.param):
        made = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        yield made
        made.Free()


@pytest.mark.parametrize("method", METHODS)
def test_results_are_right_whatever_is_chosen(comm, method):
    for count in (3, 3000):
        pattern = "uneven" if method.endswith("v") else ""
        check(comm, Case(method, None, count, pattern, root=SIZE - 1))


@pytest.mark.parametrize("method", METHODS)
def test_algorithms_for_hosts_are_right_in_every_form(comm, method):
    for card in (card for card in registry.known(method) if card.by_hosts):
        for form, count, root in itertools.product(forms(method), (0, 1, 5, 700), (0, SIZE - 1)):
            pattern = "uneven" if method.endswith("v") else ""
            for segments in (1, 3):
                check(comm, Case(method, f"{card.name}/{segments}", count, pattern, root=root, form=form))


INNER = [
    ("Allreduce", "hierarchical(reduce_scatter=pairwise,allreduce=ring,allgather=ring)"),
    ("Allreduce", "leader(reduce=linear,allreduce=circulant,bcast=scatter_allgather)"),
    ("Bcast", "striped(scatter=ring,bcast=ring,allgather=bruck)"),
    ("Reduce", "striped(reduce_scatter=ring,reduce=ring,gather=binomial)"),
    ("Allgatherv", "striped(allgather=ring)"),
    ("Reduce_scatter", "striped(reduce_scatter=circulant)"),
    ("Gather", "leader(gather=binomial)"),
    ("Scatter", "leader(scatter=ring)"),
    ("Scan", "leader(scan=ring,exscan=linear,bcast=ring)"),
    ("Exscan", "leader(exscan=ring)"),
]


@pytest.mark.parametrize(("method", "algorithm"), INNER)
def test_inner_algorithms_that_are_chosen_give_right_results(comm, method, algorithm):
    for form, count, segments in itertools.product(forms(method), (0, 5, 700), (1, 4)):
        pattern = "uneven" if method.endswith("v") else ""
        check(comm, Case(method, f"{algorithm}/{segments}", count, pattern, root=SIZE - 1, form=form))


IN_RACKS = [
    ("Allreduce", "striped(allreduce=striped)"),
    ("Allreduce", "leader(allreduce=striped(allreduce=ring))"),
    ("Bcast", "striped(bcast=chained)"),
    ("Reduce", "striped(reduce=leader)"),
    ("Allgatherv", "striped(allgather=striped)"),
    ("Reduce_scatter", "striped(reduce_scatter=striped)"),
    ("Gather", "leader(gather=leader)"),
    ("Scatter", "leader(scatter=leader)"),
]


@pytest.mark.parametrize(("method", "algorithm"), IN_RACKS)
def test_hosts_in_racks_give_right_results(method, algorithm):
    """Three levels: ranks, hosts and racks; on parts of a communicator, too."""
    with mpicoll.override(topology="hosts=4/2"):
        comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        part = comm.Split(0, -RANK)
        for one, form, count, segments in itertools.product((comm, part), forms(method), (0, 5, 700), (1, 4)):
            pattern = "uneven" if method.endswith("v") else ""
            check(one, Case(method, f"{algorithm}/{segments}", count, pattern, root=SIZE - 1, form=form))
        assert context_of(comm).topology == laid_out("4/2", SIZE)
        assert context_of(part).topology == laid_out("4/2", SIZE).part(range(SIZE)[::-1])
        part.Free()
        comm.Free()


def test_a_plan_names_the_inner_algorithms(comm):
    x = np.zeros(1 << 16, "u1")
    plan = comm.Get_plan("Allreduce", x, x.copy(), MPI.MAX, algorithm="hierarchical(allgather=ring)/4")
    assert str(plan.choice) == "striped(allgather=ring)/4@host"
    with pytest.raises(ValueError, match="no inner gather to choose; striped has reduce_scatter, allreduce, allgather"):
        comm.Allreduce(x, x.copy(), MPI.MAX, algorithm="hierarchical(gather=ring)")


def test_parts_of_a_communicator_keep_the_hosts_of_their_ranks(comm):
    """Every second rank, in the opposite order."""
    comm.Barrier()
    whole = context_of(comm).topology.host_of or (0,) * SIZE
    part = comm.Split(RANK % 2, -RANK)
    part.Barrier()
    ranks = [rank for rank in range(SIZE) if rank % 2 == RANK % 2][::-1]
    assert context_of(part).topology == Topology.of([whole[rank] for rank in ranks])
    part.Free()


def test_all_ranks_choose_alike(comm):
    for nbytes in (8, 1 << 12, 1 << 18):
        plan = comm.Get_plan("Allreduce", np.zeros(nbytes, "u1"), np.zeros(nbytes, "u1"), MPI.MAX)
        assert len(set(MPI.COMM_WORLD.allgather(plan.choice))) == 1


def test_without_the_setting_ranks_of_one_host_are_together(world):
    world.Barrier()
    assert context_of(world).topology is FLAT


def test_a_topology_of_other_numbers_of_ranks_is_refused_on_all_ranks():
    with mpicoll.override(topology=f"0-{SIZE},{SIZE + 1}" if SIZE > 1 else "1-2"):
        own = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        if SIZE > 1:
            own.Barrier()  # more ranks than there are do no harm
        else:
            with pytest.raises(ValueError, match="is on one host"):
                own.Barrier()


@pytest.mark.skipif(SIZE == 1, reason="one rank has no other setting than itself")
def test_ranks_with_other_topologies_are_told():
    with mpicoll.override(topology=f"hosts={1 + RANK % 2}"):
        own = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        said = "setting 'topology' is 'hosts=1' on rank 0, 'hosts=2' on rank 1"
        with pytest.raises(mpicoll.MismatchError, match=said):
            own.Barrier()
