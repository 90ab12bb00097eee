"""The source of the mapped path: NVRTC takes it, and what Python packs for it is what it reads.

The compiler is looked for among the installed wheels; without one only the rest is tested.
"""

import ctypes
import functools
import importlib
import itertools
import re
import sys
from importlib import metadata
from unittest import mock

import numpy as np
import pytest

import mpicoll.runtime
import oracle
from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.operators import OPERATORS
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.paths.mapped.source import LINES, SLICES, kernel_source, memory_cells
from unit.mapped_interpreter import programs_of

WHEELS = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc")
OPTIONS = ("-std=c++14", "-fmad=false")
ARCHITECTURES = (70, 80, 90)
PROTOCOLS = {"lines": LINES, "slices": SLICES}
#: what is chosen for long vectors
CHOSEN = (
    "allreduce.two_shot", "bcast.double_binary_tree", "bcast.scatter_allgather", "reduce.ring",
    "allgather.linear", "reduce_scatter.all_pairs", "alltoall.linear", "gather.linear", "scatter.linear",
)  # fmt: skip
#: schedules with several sums, with credits, with scratch, with one cell for each two ranks
SOME = ("allreduce.two_shot", "reduce.ring", "scan.recursive_doubling", "reduce_scatter.recursive_halving")


@functools.cache
def nvrtc():
    """The compiler's library, skipping the test where there is none."""
    for wheel in WHEELS:
        try:
            files = metadata.files(wheel) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if re.fullmatch(r"libnvrtc\.so\.\d+", file.name):
                return ctypes.CDLL(str(file.locate()))
    return None


@functools.cache
def architectures():
    """Those of ARCHITECTURES that this compiler knows."""
    number = ctypes.c_int()
    assert nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(number)) == 0
    known = (ctypes.c_int * number.value)()
    assert nvrtc().nvrtcGetSupportedArchs(known) == 0
    return [arch for arch in ARCHITECTURES if arch in known]


def compiles(source, arch):
    """Compile to machine code; fail with the compiler's log, or return it."""
    lib, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"mapped.cu", 0, None, None) == 0
    try:
        options = [option.encode() for option in (*OPTIONS, f"-arch=sm_{arch}", "--ptxas-options=-v")]
        status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        assert status == 0, log.value.decode()
        lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        assert size.value > 1000
        return log.value.decode()
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.fixture
def compiler():
    if nvrtc() is None:
        pytest.skip(f"none of {', '.join(WHEELS)} is installed")


@functools.cache
def lowered(name, size, early=True, aliased=False):
    """All ranks' programs."""
    card = registry.get(*name.split("."))
    ranks = set(range(size)) if aliased or card.row.shared else set()
    return programs_of(card.schedules(size), ranks, early=early)


def source_of(name, protocol, size=4, rank=0, op="SUM", dtype="float32", slots=0, items=False):
    card = registry.get(*name.split("."))
    operator = OPERATORS[op] if card.row.reducing else None
    program = lowered(name, size, protocol == "lines")[rank]
    how = PROTOCOLS[protocol]
    return kernel_source(program, how, slots or how.slots, rank, size, operator, kind(dtype), items)


def kind(dtype):
    if dtype == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", kernels._TYPES)
def test_every_dtype_compiles(compiler, dtype, protocol):
    """With some of the operators that there are for it; schedules and architectures take turns."""
    usable = [arch for arch in architectures() if dtype != "bfloat16" or arch >= 80]
    names = [op for op in OPERATORS if OPERATORS[op].cuda and op != "AVG" and oracle.supports(op, kind(dtype))]
    assert "SUM" in names
    shift = list(kernels._TYPES).index(dtype)
    for turn, op in enumerate(names[shift % 3 :: 3], shift):
        compiles(source_of(SOME[turn % len(SOME)], protocol, op=op, dtype=dtype), usable[turn % len(usable)])


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_architecture_compiles(compiler, arch, protocol):
    if arch not in architectures():
        pytest.skip("this compiler does not know it")
    for rank in (0, 2):
        compiles(source_of("allreduce.two_shot", protocol, rank=rank, dtype="float16"), arch)
    compiles(source_of("alltoall.linear", protocol, dtype="complex128"), arch)


@pytest.mark.slow
def test_every_algorithm_compiles(compiler, card):
    """On some number of ranks, as some rank; the protocols take turns."""
    if card.collective == "barrier":
        pytest.skip("has no arrays")
    size = next((p for p in (3, 4) if not card.refuses(p)), 4)
    name = f"{card.collective}.{card.name}"
    protocol = ("lines", "slices")[sum(map(ord, name)) % 2]
    compiles(source_of(name, protocol, size, rank=len(name) % size), architectures()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CHOSEN)
def test_values_stay_in_registers(compiler, mapped, name, protocol, size):
    """What a lane holds of a tile is not kept in memory, and never until the next tile."""
    card, how = registry.get(*name.split(".")), PROTOCOLS[protocol]
    most = mapped.protocol_for.__globals__["most_sent"](tuple(card.schedules(size)))
    slots = min(how.slots, peers(mapped, size).layout.inbox_bytes(protocol) // (most * how.place))
    log = compiles(source_of(name, protocol, size, rank=size - 1, slots=slots), 90)
    (spilled,) = re.findall(r"properties for collective\s.*?(\d+) bytes spill stores", log, re.DOTALL)
    assert int(spilled) <= 64


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CHOSEN)
def test_every_kernel_of_many_calls_compiles(compiler, mapped, name, protocol):
    """What a lane holds of a tile stays in registers, as in the kernel of one call."""
    log = compiles(source_of(name, protocol, 4, rank=3, slots=200, items=True), 90)
    (spilled,) = re.findall(r"properties for collective\s.*?(\d+) bytes spill stores", log, re.DOTALL)
    assert int(spilled) <= 64


@pytest.mark.slow
def test_a_program_without_elements_compiles(compiler):
    """One rank alone has nothing to do."""
    for name, size, rank in (("bcast.linear", 1, 0), ("exscan.linear", 1, 0)):
        compiles(source_of(name, "lines", size, rank), architectures()[-1])


def fields(source):
    """Return how many 64-bit fields `struct Args` has, and their names."""
    numbers = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)$", source, re.MULTILINE)}
    (body,) = re.findall(r"struct Args \{(.*?)\};", source, re.DOTALL)
    body = re.sub(r"//.*", "", body)
    chosen = r"\1" if "#define ITEMS\n" in source else r"\2"
    body = re.sub(r"#ifdef ITEMS\n(.*?)#else\n(.*?)#endif", chosen, body, flags=re.DOTALL)
    total, names = 0, []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        for name, length in re.findall(r"(\w+)(?:\[(\w+)\])?(?:,|$)", re.sub(r"^(u64|long long) ", "", declaration)):
            total += numbers[length] if length else 1
            names.append(name)
        assert declaration.startswith(("u64 ", "long long ")), declaration
    return total, names


@pytest.fixture
def mapped():
    """The module that packs the argument, over a CuPy that is made up."""
    cupy = dict.fromkeys(("cupy", "cupy.cuda", "cupy.cuda.driver"), mock.MagicMock())
    ours = [name for name in sys.modules if name.startswith(("mpicoll.runtime.paths.", "mpicoll.runtime.cuda."))]
    with mock.patch.dict(sys.modules, cupy):
        for name in ours:
            sys.modules.pop(name)
        yield importlib.import_module("mpicoll.runtime.paths.mapped.kernel")


def peers(mapped, size, nbytes=128 << 20, rank=1):
    """Stand-in for a mapping whose pieces are far from each other."""
    layout = mapped.Peers.__init__.__globals__["InboxLayout"](size, nbytes)
    pieces = [number << 40 for number in range(1, size + 1)]
    return mock.Mock(spec_set=["layout", "pieces", "rank", "host"], layout=layout, pieces=pieces, rank=rank, host=7)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("name", "size"), [("allreduce.two_shot", 4), ("bcast.ring", 2), ("alltoall.linear", 8)])
def test_as_much_is_packed_as_is_read(mapped, name, size, protocol):
    source, program = source_of(name, protocol, size, rank=1), lowered(name, size, protocol == "lines")[1]
    wanted, names = fields(source)
    there, how = peers(mapped, size), PROTOCOLS[protocol]
    numbers = mapped.numbers_of(there, how, 11, 5)
    memory = [1000 + k for k in range(len(memory_cells(program)))]
    counts = [2000 + k for k in range(len(program.cells))]
    packed = mapped.packed_argument(memory, mapped._rest(counts, mapped.addresses_of(there, how), numbers))
    found = np.frombuffer(packed, "u8", wanted)
    assert len(packed) - 1 == 8 * wanted
    assert found[: len(memory) + len(counts)].tolist() == memory + counts
    assert len(numbers) == len(names) - names.index("control")
    last = dict(zip(names[-len(numbers) :], found[-len(numbers) :].tolist(), strict=True))
    assert (last["tiles"], last["slots"], last["host"], last["control"]) == (11, 5, 7, there.pieces[1])
    assert last["parity_bytes"] == 2 * last["wave_bytes"] > 0


def test_a_program_without_cells_is_packed_as_it_is_read(mapped):
    wanted, _ = fields(source_of("bcast.linear", "lines", 1))
    there = peers(mapped, 1, rank=0)
    numbers = mapped.numbers_of(there, LINES, 0, 1)
    packed = mapped.packed_argument([], mapped._rest([], mapped.addresses_of(there, LINES), numbers))
    assert len(packed) - 1 == 8 * max(wanted, 2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_what_ranks_write_and_where_others_look_is_the_same(mapped, size, protocol):
    """Here and there: inbox, flags, token and credit of each two ranks, none of which overlap."""
    how, found = PROTOCOLS[protocol], {}
    for rank in range(size):
        there = peers(mapped, size, rank=rank)
        groups = iter(np.reshape(mapped.addresses_of(there, how), (4, 2, size)).tolist())
        found[rank] = dict(zip(("box", "flag", "token", "credit"), groups, strict=True))
    lengths = {"box": there.layout.inbox_bytes(protocol), "flag": 8 * mapped.SLOTS * 32, "token": 4}
    lengths["credit"] = 8 * mapped.SLOTS
    spans = []
    for kind_, length in lengths.items():
        for writer in range(size):
            for reader in range(size):
                outbox, inbox = found[writer][kind_][0][reader], found[reader][kind_][1][writer]
                assert outbox == inbox
                repeated = 4 if kind_ == "box" else 1
                stride = size * length
                spans += [(outbox + k * stride, length, reader) for k in range(repeated)]
    spans.sort()
    for (start, length, _), (after, _, _) in itertools.pairwise(spans):
        assert start + length <= after
    for start, length, reader in spans:
        piece = (reader + 1) << 40
        assert piece + 256 <= start
        assert start + length <= piece + there.layout.nbytes


def protocol_of(mapped, card, size, nbytes, linked=True):
    """Return the protocol and the slots of a long vector's kernel, with so many bytes a rank for the path."""
    plan = mock.Mock(algorithm=card.name)
    plan.path, plan.key.facts = "mapped", mock.Mock(collective=card.collective, nbytes=1 << 26, size=size)
    surroundings = mock.Mock(layout=peers(mapped, size, nbytes).layout, linked=linked)
    return mapped.protocol_for(plan, tuple(card.schedules(size)), surroundings)


@pytest.mark.parametrize("nbytes", [16 << 20, 128 << 20])
def test_the_slots_of_a_wave_fit_into_an_inbox(mapped, card, nbytes):
    """Of every algorithm on every number of ranks that it serves; none is refused."""
    sizes = [size for size in (2, 3, 8) if not card.refuses(size)]
    assert 8 in sizes
    for size, linked in itertools.product(sizes, (True, False)):
        protocol, slots = protocol_of(mapped, card, size, nbytes, linked)
        most = mapped.protocol_for.__globals__["most_sent"](tuple(card.schedules(size)))
        assert 1 <= slots <= mapped.SLOTS
        assert most * slots * protocol.parts * 512 <= peers(mapped, size, nbytes).layout.inbox_bytes(protocol.name)
        assert protocol.name == "lines" or most <= 32


def test_an_inbox_without_room_for_a_slot_is_refused(mapped, card):
    with pytest.raises(mpicoll.UnsupportedError, match="too many for the path mapped with mapped_bytes=1M; usable: "):
        protocol_of(mapped, card, 8, 1 << 20)


def test_more_than_32_blocks_from_rank_to_rank_travel_in_lines_only(mapped):
    card = registry.get("alltoall", "linear")
    for most, linked, wanted in ((32, False, "slices"), (33, True, "lines")):
        with mock.patch.dict(mapped.protocol_for.__globals__, most_sent=lambda _, most=most: most):
            assert protocol_of(mapped, card, 8, 128 << 20, linked)[0].name == wanted
    with (
        mock.patch.dict(mapped.protocol_for.__globals__, most_sent=lambda _: 33),
        pytest.raises(mpicoll.UnsupportedError, match="'linear' sends 33 blocks from rank to rank, too many"),
    ):
        protocol_of(mapped, card, 8, 128 << 20, linked=False)
