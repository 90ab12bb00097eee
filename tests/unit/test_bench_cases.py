"""Which calls the benchmark makes, and what their buffers hold."""

import pytest

from mpicoll.bench.request import cases
from mpicoll.bench.request.cases import CALLS, DEFAULT_CALLS, Contents, Piece, calls_named, contents, make_case, uneven
from mpicoll.schedule.collectives import COLLECTIVES

SIZES = (1, 2, 3, 4, 7, 8)


def test_a_default_run_has_one_call_for_each_collective():
    assert [CALLS[name].row.name for name in DEFAULT_CALLS] == list(COLLECTIVES)
    assert calls_named(["default", "gatherv", "Bcast"]) == (*DEFAULT_CALLS, "gatherv")
    assert len(calls_named(["all"])) == 16


def test_an_unknown_call_is_named_with_the_known():
    with pytest.raises(ValueError, match=r"no call 'reduces'; known: all, default, barrier, bcast"):
        calls_named(["reduces"])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 36, 1000])
@pytest.mark.parametrize("parts", SIZES)
def test_uneven_counts_sum_up_and_differ(count, parts):
    counts = uneven(count, parts)
    assert len(counts) == parts
    assert sum(counts) == count
    assert min(counts) >= 0
    if count == 1000 and parts > 1:
        assert len(set(counts)) == parts


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("nbytes", [0, 8, 100, 4096])
def test_messages_have_about_the_size_asked_for(name, size, nbytes):
    case = make_case(CALLS[name], nbytes, "float32", size, "SUM", size - 1)
    row = case.call.row
    assert sum(case.counts()) == case.count * (size if row.name == "alltoall" else 1)
    assert (case.redop, case.root) == ("SUM" if row.reducing else "", size - 1 if row.rooted else 0)
    if name == "barrier":
        assert case.nbytes == 0
    elif nbytes >= 4 * size:
        assert nbytes - 4 * size < case.nbytes <= nbytes
    else:
        assert (case.nbytes > 0) == (nbytes > 0)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", SIZES)
def test_buffers_hold_their_pieces(name, size, in_place):
    for root in range(size if CALLS[name].row.rooted else 1):
        case = make_case(CALLS[name], 400, "float32", size, "SUM", root)
        for rank in range(size):
            for what in contents(case, rank, in_place):
                if what:
                    assert all(0 <= p.at <= p.at + p.count <= what.length for p in what.inputs + what.outputs)
                    assert sum(p.count for p in what.inputs) <= what.length


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("in_place", [False, True])
def test_every_piece_received_was_sent(name, in_place):
    size, root = 4, 2
    case = make_case(CALLS[name], 400, "float32", size, "SUM", root if CALLS[name].row.rooted else 0)
    sent = {}
    for rank in range(size):
        send, recv = contents(case, rank, in_place)
        for piece in (send or recv or Contents(0)).inputs:
            sent[rank, piece.start] = piece.count
    for rank in range(size):
        for piece in (contents(case, rank, in_place)[1] or Contents(0)).outputs:
            assert all(sent[source, piece.start] == piece.count for source in piece.ranks)


def test_in_place_blocks_lie_where_mpi_wants_them():
    def both(name, rank, root=0):
        send, recv = contents(make_case(CALLS[name], 24, "float32", 3, "SUM", root), rank, True)
        assert send is recv
        return send

    assert both("allgather", 1).inputs == (Piece(2, 2, 2, (1,)),)
    assert both("gather", 1, root=1).inputs == (Piece(2, 2, 2, (1,)),)
    assert both("scatter", 2, root=2).outputs == (Piece(4, 2, 4, (2,)),)
    front = both("reduce_scatter_block", 2)
    assert (front.outputs, front.defined) == ((Piece(0, 2, 4, (0, 1, 2)),), 2)
    assert both("bcast", 1).inputs == ()


def test_only_the_root_is_in_place():
    send, recv = contents(make_case(CALLS["reduce"], 24, "float32", 3, "SUM", 1), 0, True)
    assert (send.length, recv) == (6, None)
    assert contents(make_case(CALLS["scatter"], 24, "float32", 3, "", 1), 0, True)[0] is None


def test_exscan_leaves_rank_0_alone_but_gives_it_a_buffer():
    send, recv = contents(make_case(CALLS["exscan"], 24, "float32", 3, "SUM", 0), 0, False)
    assert (send.length, recv.length, recv.outputs) == (6, 6, ())


def test_alltoallv_in_place_sends_what_it_receives():
    case = make_case(CALLS["alltoallv"], 400, "float32", 3, "", 0)
    for rank in range(3):
        both = contents(case, rank, True)[0]
        assert [p.count for p in both.inputs] == [p.count for p in both.outputs]


def test_a_small_even_message_has_an_element_for_each_rank():
    assert make_case(CALLS["alltoall"], 8, "float32", 8, "", 0).count == 8
    assert make_case(CALLS["alltoallv"], 8, "float32", 8, "", 0).count == 2
    assert cases.CALLS["bcast"].forms == (True,)
