"""The shortcut of calls on host arrays: found by the identity of their buffers, and right whatever became of these."""

import contextlib
import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.communicator import Communicator
from mpicoll.runtime.call import shortcut


@pytest.fixture
def comm():
    made = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    yield made
    made.Free()


@pytest.fixture
def long(monkeypatch):
    """The methods of the calls that did not take the shortcut."""
    seen, way = [], Communicator._run_in_turn

    def counted(self, method, *rest):
        seen.append(method)
        return way(self, method, *rest)

    monkeypatch.setattr(Communicator, "_run_in_turn", counted)
    return seen


def known(comm, *arguments, method="Allreduce"):
    """Make a call until the shortcut knows it."""
    for _ in range(3):
        getattr(comm, method)(*arguments)


def test_the_same_arrays_take_the_shortcut_from_the_third_time_on(comm, long):
    x, y = np.arange(5.0), np.zeros(5)
    for number in range(6):
        x[0] = number
        comm.Allreduce(x, y)
        assert y.tolist() == [number, 1, 2, 3, 4]
    assert long == ["Allreduce"] * 2


@pytest.mark.parametrize("buffer", ["list", "tuple", "counts", "in place", "root"])
def test_other_buffers_take_it_too(comm, long, buffer):
    x, y = np.arange(5.0), np.zeros(5)
    lists, tuples, counts = [[a, 5, MPI.DOUBLE] for a in (x, y)], [(a, MPI.DOUBLE) for a in (x, y)], [y, [5]]
    calls = {
        "list": lambda: comm.Allreduce(*lists),
        "tuple": lambda: comm.Allreduce(*tuples),
        "counts": lambda: comm.Allgatherv(x, counts),
        "in place": lambda: comm.Allreduce(MPI.IN_PLACE, x),
        "root": lambda: comm.Bcast(x, 0),
    }
    for _ in range(6):
        calls[buffer]()
    assert len(long) == 2
    assert buffer in ("in place", "root") or (x == y).all()


def test_views_and_lists_that_are_made_for_each_call_are_right(comm):
    """Each is another object, which may have the identity of one before."""
    x, y = np.arange(5.0), np.zeros(5)
    for number in range(40):
        x[0] = number
        comm.Allreduce(x[:], y[:]) if number % 3 else comm.Allreduce([x, 5, MPI.DOUBLE], [y, 5, MPI.DOUBLE])
        assert y.tolist() == [number, 1, 2, 3, 4]
        comm.Allreduce([y, 2, MPI.DOUBLE], [x[1:], 2, MPI.DOUBLE])
        assert x.tolist() == [number, number, 1, 3, 4]
        x[:] = range(5)


def write_protected(array):
    array.flags.writeable = False


#: what is done to an array of 6 float64 between two calls, in place
CHANGES = {
    "size": lambda a: a.resize(3, refcheck=False),
    "memory": lambda a: a.resize(4000, refcheck=False),
    "precision": lambda a: setattr(a, "dtype", "f4"),
    "kind of number": lambda a: setattr(a, "dtype", "i8"),
    "byte order": lambda a: setattr(a, "dtype", ">f8"),
    "read-only": write_protected,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("change", CHANGES)
def test_an_array_that_was_changed_in_place_is_read_again(comm, long, change, place):
    arrays = [np.arange(6.0), np.zeros(6)]
    known(comm, *arrays)
    before = len(long)
    CHANGES[change](arrays[place])
    try:
        comm.Allreduce(*arrays)
        refused = False
    except (TypeError, ValueError):
        refused = True
    assert len(long) == before + 1
    assert refused is (change != "read-only" or place == 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_that_became_strided_is_packed(comm, long):
    x, y = np.arange(6.0), np.zeros(6)
    known(comm, x, y)
    x.strides = (0,)
    before = len(long)
    comm.Allreduce(x, y)
    assert (y.tolist(), len(long)) == ([0.0] * 6, before + 1)


def test_an_array_that_got_another_shape_is_the_same(comm, long):
    x, y = np.arange(6.0), np.zeros(6)
    known(comm, x, y)
    before = len(long)
    for shape in ((1, 6), (6,)):
        x.shape = shape
        comm.Allreduce(x, y)
    assert len(long) == before
    x.shape = 2, 3
    comm.Allreduce(x, y)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "other",
    [
        lambda x: [x, 2, MPI.DOUBLE],
        lambda x: [x, 3.0, MPI.DOUBLE],
        lambda x: [x, 3, MPI.INT64_T],
        lambda x: [x, 3],
        lambda x: [x.copy(), 3, MPI.DOUBLE],
        lambda x: [x, True, MPI.DOUBLE],
        lambda x: [None, 3, MPI.DOUBLE],
        lambda x: [x[:0], 3, MPI.DOUBLE],
        lambda x: [x, np.array([1, 2]), MPI.DOUBLE],
    ],
)
def test_a_list_that_was_changed_in_place_is_another_one(comm, long, other):
    x, y = np.arange(3.0), np.zeros(3)
    spec = [x, 3, MPI.DOUBLE]
    known(comm, spec, y)
    before = len(long)
    comm.Allreduce(spec, y)
    assert len(long) == before
    spec[:] = other(x)
    with contextlib.suppress(TypeError, ValueError):
        comm.Allreduce(spec, y)
    assert len(long) == before + 1


def test_a_list_with_counts_of_its_own_is_compared_as_a_whole(comm, long):
    x, y, counts = np.arange(3.0), np.zeros(3), [3]
    spec = [y, counts]
    known(comm, x, spec, method="Allgatherv")
    before = len(long)
    comm.Allgatherv(x, spec)
    assert len(long) == before
    counts[0] = 2
    with pytest.raises(ValueError, match="allgatherv"):
        comm.Allgatherv(x, spec)


def test_arrays_that_come_and_go_are_never_taken_for_each_other(comm):
    """Their identities are given out again, their memory too, now with another size, dtype or distance."""
    generator = np.random.default_rng(5)
    base = np.zeros(400)
    for number in range(3000):
        start, count, shift = (int(n) for n in generator.integers([0, 1, 0], [100, 40, 160]))
        dtype = ("f8", "f4", "i8", "i4")[number % 4]
        x = base[start : start + count].view(dtype)
        x[:] = np.arange(x.size) + number % 7
        y = np.empty(x.size, dtype) if number % 3 else base[200 + shift : 200 + shift + count].view(dtype)
        comm.Allreduce(x, y) if number % 2 else comm.Iallreduce(x, y).Wait()
        assert (y == np.arange(x.size) + number % 7).all(), number
        del x, y


def test_arrays_that_overlap_in_another_way_are_refused_again(comm):
    """Equal in all else, so that only their distance tells."""
    memory = np.zeros(20)
    for _ in range(3):
        comm.Allreduce(memory[:5], memory[5:10])
        comm.Allreduce(memory[:5], memory[:5])
        for start in (1, 4):
            with pytest.raises(ValueError, match="overlaps"):
                comm.Allreduce(memory[4:9], memory[4 + start : 9 + start])
            with pytest.raises(ValueError, match="overlaps"):
                comm.Allreduce(memory[4:9], memory[4 - start : 9 - start])


def test_parts_of_arrays_elsewhere_are_found_at_their_places(comm):
    """A call that is decided for one pair of arrays has its displacements and counts for any other pair, too."""
    kept = []
    for number in range(5):
        x, y = np.arange(10.0) + number, np.zeros(10)
        kept.append((x, y))  # so that each is elsewhere
        comm.Allreduce([x, 3, 2, MPI.DOUBLE], [y, 3, 5, MPI.DOUBLE])
        assert y.tolist() == [0] * 5 + [number + k for k in (2, 3, 4)] + [0] * 2
        comm.Allgatherv([x, 2, 7, MPI.DOUBLE], [y, [2], [8], MPI.DOUBLE])
        assert y[8:].tolist() == [number + 7, number + 8]
        comm.Allreduce(MPI.IN_PLACE, [x, 4, 6, MPI.DOUBLE], mpicoll.AVG)
        assert x.tolist() == [number + k for k in range(10)]


def test_many_arrays_in_turn_are_noted_seldom(comm, monkeypatch):
    """Where the same object is another call each time, noting is in vain, and would take longer than the key."""
    noted = []
    cache = comm._get_context().cache
    note = cache.note_identity
    monkeypatch.setattr(cache, "note_identity", lambda *given: noted.append(1) or note(*given))
    memory = np.zeros(100)
    for _ in range(40):
        for count in (10, 20, 30):
            comm.Allreduce(MPI.IN_PLACE, memory[:count])
    assert len(noted) <= 3 * 6
    assert sum(len(one.identities) for one in cache.calls.values()) <= 12


def test_a_call_of_another_form_finds_what_was_noted(comm, monkeypatch):
    x, y = np.arange(4.0), np.zeros(4)
    known(comm, x, y)
    found, find = [], shortcut.found
    monkeypatch.setattr(shortcut, "found", lambda *given: found.append(find(*given)) or found[-1])
    comm.Iallreduce(x, y).Wait()
    comm.Iallreduce(y, x).Wait()
    (one, _) = comm._get_context().cache.calls.values()
    assert found == [one, None]
    with mpicoll.override(debug=0):
        comm.Iallreduce(x, y).Wait()
    assert found[-1] is None


def test_noted_arrays_are_not_kept_alive(comm):
    x, y = np.arange(4.0), np.zeros(4)
    known(comm, x, [y, 4])
    gone = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


@pytest.mark.parametrize("made", ["views", "lists", "lists of views", "sizes", "tuples in place"])
def test_buffers_that_are_made_for_each_call_are_found_by_their_places(comm, long, made):
    """Whatever Python objects they are, and whichever objects had their identity before."""
    memory, y, held = np.arange(40.0), np.zeros(20), []
    calls = {
        "views": lambda n: comm.Allreduce(memory[:5], y[:5]),
        "lists": lambda n: comm.Allreduce([memory, 5, MPI.DOUBLE], [y, 5, MPI.DOUBLE]),
        "lists of views": lambda n: comm.Allreduce([memory[:5], MPI.DOUBLE], [y[:5], 5, MPI.DOUBLE]),
        "sizes": lambda n: comm.Allreduce(memory[: 1 + n % 7], y[: 1 + n % 7]),
        "tuples in place": lambda n: comm.Allreduce(MPI.IN_PLACE, (memory[3:8], MPI.DOUBLE)),
    }
    for n in range(40):
        calls[made](n)
        held.append([None] * n)  # lists that take identities away
    assert len(long) <= 2 * 7
    for n in range(40, 60):
        long.clear()
        y[:] = 0
        calls[made](n)
        assert not long
        if made == "sizes":
            assert y.tolist() == [*range(1 + n % 7), *[0] * (19 - n % 7)]


def test_calls_that_differ_in_what_a_place_leaves_out(comm):
    """Dtype, operator, type and count of a list: each is compared."""
    memory, y = np.arange(8.0), np.zeros(8)
    for _ in range(20):
        for op, wanted in ((MPI.SUM, 1.0), (MPI.MAX, 1.0)):
            y[:] = -1
            comm.Allreduce(memory[:2], y[:2], op)
            assert y.tolist() == [0, wanted, *[-1] * 6]
        comm.Allreduce(memory[:2].view("i8"), y[:2].view("i8"))
        for number in (1, 2):
            y[:] = -1
            comm.Allreduce([memory, number, MPI.DOUBLE], [y, number, MPI.DOUBLE])
            assert y.tolist() == [*range(number), *[-1] * (8 - number)]
