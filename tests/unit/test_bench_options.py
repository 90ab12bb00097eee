"""The benchmark's command line."""

import pytest

from mpicoll.bench.request.cases import DEFAULT_CALLS
from mpicoll.bench.request.numbers import DTYPES, REDUCTIONS
from mpicoll.bench.request.options import parse
from mpicoll.ranges import FACTOR, growing, message_sizes, whole_numbers


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
        ("--iters 0", "'0' is not a whole number from 1 to 1000000"),
        ("--root -1", "'-1' is not a whole number"),
        ("--budget nan", "'nan' is not a number of seconds"),
        ("--buffers numpy --path staged", "--path staged is for CuPy buffers"),
        ("--op bcast,", "'bcast,' has an empty item"),
        ("--inplace --outofplace", "not allowed with"),
        (
            "--baseline ncll",
            "no baseline 'ncll'; known: nccl, native, torch, nccl-symmetric, torch-symmetric, staged, limit",
        ),
        ("--baseline limit --breakdown", "--baseline is for the table of times"),
        ("--baseline limit --async", "--baseline is for the table of times"),
        ("--overhead --breakdown", "not allowed with"),
        ("--check-guidelines --overhead", "not allowed with"),
        ("--check-guidelines --algorithm ring", "--check-guidelines compares with every algorithm"),
        ("--check-guidelines --baseline native,limit", "--check-guidelines: limit is a bound"),
        ("--check-guidelines --iters 9", "--check-guidelines times calls until that is enough"),
        ("--check-guidelines --sync window", "--check-guidelines starts calls after barriers"),
        ("--check-guidelines --stat p99", "--stat is for the table of times"),
        ("--regret --breakdown", "not allowed with"),
        ("--regret --algorithm ring", "--regret compares with every algorithm"),
        ("--regret --iters 9", "--regret times calls until that is enough"),
        ("--regret --inplace", "--regret compares calls out of place"),
        ("--regret --sync window", "--regret starts calls after barriers"),
        ("--regret --stat p99", "--stat is for the table of times"),
        ("--regret --baseline native", "--baseline is for the table of times"),
        ("--regret --max 1M", "--regret is measured at sizes of its own, or at --bytes"),
        ("--check-guidelines --inplace", "--check-guidelines compares calls out of place"),
        ("--json=", "'' is not the name of a file"),
        ("--op bcast --op a", "no call 'a'; known: "),
        ("--op= --min 8", "'' has an empty item"),
        ("--min 8 --min 16", "--min: is given twice"),
        ("--json a --json b", "--json: is given twice"),
        ("--async 1 --async 2", "--async: is given twice"),
        ("--buffers numpy --buffers cupy", "--buffers: is given twice"),
        ("--sizes 8 --min 4", "--bytes are all sizes; --min, --max and --factor are for others"),
        ("--sizes 8 --factor 2", "--bytes are all sizes"),
        ("--overhead --max 64", "--overhead is measured at 0 and 8 bytes, or at --bytes"),
        ("--root all --root 0", "'all' is not a whole number"),
        ("--iters 10000000", "'10000000' is not a whole number from 1 to 1000000"),
        ("--warmup 10000000", "is not a whole number from 0 to 1000000"),
        ("--budget 0", "'0' is not a number of seconds above 0"),
        ("--budget inf", "'inf' is not a number of seconds above 0"),
        ("--budget soon", "'soon' is not a number of seconds above 0"),
        ("--async 1e9", "'1e9' is not a number of milliseconds from 0 to 60000"),
        ("--async --iters 2", "--iters: a spread needs 3 calls"),
        ("--overhead --iters 1", "--iters: a spread needs 3 calls"),
        ("--ranks 0,2", "'0,2': there is no run on 0 ranks"),
        ("--ranks two", "'two' is no number or range of numbers such as 1-4"),
        ("--bytes 64K-8", "'64K-8': sizes go up, as 8-4M"),
        ("--bytes 8:2", "'8:2': a factor is a whole number from 2 on, behind a range such as 8-4M:2"),
        ("--bytes 8-4M:1", "'8-4M:1': a factor is a whole number from 2 on"),
        ("--budget 5h", "'5h' is not a number of seconds above 0 such as 90 or 5m"),
        ("--ci 5", "'5' is not a part of the median between 0 and 1, such as 0.05"),
        ("--stat modus", "no statistic 'modus'; known: median, mean, min, max, p99, ci"),
        ("--seed x", "'x' is not a whole number from 0 to 4294967295"),
    ],
)
def test_mistakes_are_named_by_one_rank(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(arguments.split())
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert (message in err, err.count("\n")) == (True, 1)
    with pytest.raises(SystemExit):
        parse(arguments.split(), loud=False)
    assert capsys.readouterr() == ("", "")


def test_modes_and_baselines():
    assert (parse([]).mode, parse([]).baselines, parse([]).sizes) == ("times", (), ())
    assert parse(["--overhead"]).mode == "overhead"
    assert parse(["--async", "2"]).mode == "overlap"
    assert parse(["--baseline", "limit,nccl"]).baselines == ("limit", "nccl")
    assert parse(["--sizes", "1M,8,64K"]).sizes == (8, 65536, 1 << 20)


def test_a_list_that_is_given_twice_is_one_list():
    """No item of the first is lost, and none is there twice."""
    assert parse(["--op", "bcast", "--op", "allreduce,bcast"]).calls == ("bcast", "allreduce")
    assert parse(["--sizes", "1K", "--sizes", "8"]).sizes == (8, 1024)
    assert parse(["--algorithm", "ring", "--algorithm", "auto"]).algorithms == ("ring", "auto")
    assert parse(
        ["--redop", "sum", "--redop", "max", "--dtype", "f4", "--dtype", "f8", "--root", "1", "--root", "0"]
    ).roots == (1, 0)
    assert parse(["--baseline", "native", "--baseline", "limit"]).baselines == ("native", "limit")


def test_sizes_that_are_not_given_have_their_defaults():
    assert (parse(["--sizes", "8"]).smallest, parse([]).factor) == (8, 8)
    assert (parse(["--max", "64"]).smallest, parse(["--factor", "2"]).factor) == (8, 2)
    assert parse(["--async"]).compute == 0.0


def test_the_method_is_asked_for():
    found = parse([])
    assert (found.sync, found.width, found.shuffle, found.seed, found.ranks) == ("barrier", 0.05, True, None, ())
    words = "--sync window --ci 0.02 --no-shuffle --seed 7 --ranks 2-4,8 --stat min,p99 --wide"
    found = parse(words.split())
    assert (found.sync, found.width, found.shuffle, found.seed) == ("window", 0.02, False, 7)
    assert (found.ranks, found.stats, found.wide) == ((2, 3, 4, 8), ("min", "p99"), True)
    assert [parse(["--budget", text]).budget for text in ("90", "90s", "5m")] == [90, 90, 300]


def test_sizes_are_a_list_or_a_range_with_a_factor():
    assert message_sizes("8,64K") == parse(["--sizes", "8,64K"]).sizes == (8, 65536)
    assert message_sizes("8-4M") == tuple(growing(8, 4 << 20, FACTOR)) == parse(["--bytes", "8-4M"]).sizes
    assert message_sizes("1K-8K:2,0") == (0, 1024, 2048, 4096, 8192)


def test_ranks_are_a_list_or_a_range():
    assert whole_numbers("2,3,8") == (2, 3, 8)
    assert whole_numbers("2-4,8") == (2, 3, 4, 8)


def test_sizes_go_by_the_factor_and_end_with_the_largest():
    assert growing(8, 512, 8) == [8, 64, 512]
    assert growing(8, 1000, 8) == [8, 64, 512, 1000]
    assert growing(0, 4, 2) == [0, 1, 2, 4]
    assert growing(0, 0, 2) == [0]
    assert growing(5, 5, 2) == [5]
