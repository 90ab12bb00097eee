"""The benchmark's command line."""

import pytest

from mpicoll.bench.cases import DEFAULT_CALLS
from mpicoll.bench.data import DTYPES, REDUCTIONS
from mpicoll.bench.options import parse, sizes


def test_defaults():
    options = parse([])
    assert options.calls == DEFAULT_CALLS
    assert options.algorithms == ("auto",)
    assert (options.dtypes, options.redops, options.roots) == (("float32",), ("SUM",), (0,))
    assert (options.smallest, options.largest, options.iterations, options.forms) == (8, None, None, (False, True))


def test_lists_and_sizes():
    arguments = "--op bcast,Allreduce --redop max,avg --dtype f4,int8 --root all --max 64K --inplace"
    options = parse(arguments.split())
    assert options.calls == ("bcast", "allreduce")
    assert options.redops == ("MAX", "AVG")
    assert options.dtypes == ("float32", "int8")
    assert (options.roots, options.largest, options.forms) == (None, 65536, (True,))
    assert parse(["--dtype", "all"]).dtypes == DTYPES
    assert parse(["--redop", "all"]).redops == tuple(REDUCTIONS)
    assert parse(["--root", "0,2"]).roots == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--op nothing", "no call 'nothing'"),
        ("--redop DIVIDE", "no operator 'DIVIDE'; known: SUM"),
        ("--dtype object", "dtype 'object' is not one of numbers"),
        ("--min 1 --max zero", "'zero' is not a number of bytes"),
        ("--min 64K --max 8", "--max 8 is less than --min 65536"),
        ("--factor 1", "'1' is not a whole number from 2 on"),
        ("--iters 0", "'0' is not a whole number from 1 on"),
        ("--root -1", "'-1' is not a whole number"),
        ("--budget nan", "'nan' is not a number of seconds"),
        ("--buffers numpy --path staged", "--path staged is for CuPy buffers"),
        ("--op bcast,", "'bcast,' has an empty item"),
        ("--inplace --outofplace", "not allowed with"),
        ("--baseline ncll", "no baseline 'ncll'; known: nccl, native, limit"),
        ("--baseline limit --breakdown", "--baseline is for the table of times"),
        ("--baseline limit --async", "--baseline is for the table of times"),
        ("--overhead --buffers cupy", "--overhead is measured on NumPy arrays"),
        ("--overhead --breakdown", "not allowed with"),
    ],
)
def test_mistakes_are_named_by_one_rank(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(arguments.split(), loud=False)
    assert capsys.readouterr() == ("", "")


def test_modes_and_baselines():
    assert (parse([]).mode, parse([]).baselines, parse([]).sizes) == ("", (), ())
    assert parse(["--overhead"]).mode == "overhead"
    assert parse(["--async", "2"]).mode == "overlap"
    assert parse(["--baseline", "limit,nccl"]).baselines == ("limit", "nccl")
    assert parse(["--sizes", "1M,8,64K"]).sizes == (8, 65536, 1 << 20)


def test_sizes_go_by_the_factor_and_end_with_the_largest():
    assert sizes(8, 512, 8) == [8, 64, 512]
    assert sizes(8, 1000, 8) == [8, 64, 512, 1000]
    assert sizes(0, 4, 2) == [0, 1, 2, 4]
    assert sizes(0, 0, 2) == [0]
    assert sizes(5, 5, 2) == [5]
