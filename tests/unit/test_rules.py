import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpicoll
from mpicoll.algorithms import catalogue
from mpicoll.dispatch.rules import ANY, PATHS, Choice, Rule, parse_choice, parse_rules
from mpicoll.schedule.topology import forced

K = 1024


def decides(text, nbytes, size=4, memory="host", collective="allreduce"):
    """The first rule's algorithm for a call, None if no rule speaks."""
    matching = (r for r in parse_rules(text) if r.matches(collective, nbytes, size, memory))
    return next((str(r.choice) for r in matching), None)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("allreduce:ring", Rule("allreduce", Choice("ring"))),
        ("allreduce:0-64K:ring", Rule("allreduce", Choice("ring"), high=64 * K)),
        ("allreduce:64K-inf:ring", Rule("allreduce", Choice("ring"), low=64 * K)),
        ("allreduce:p=4:ring", Rule("allreduce", Choice("ring"), ranks=(4, 4))),
        ("allreduce:p=2-8:ring", Rule("allreduce", Choice("ring"), ranks=(2, 8))),
        ("allreduce:p=pow2:ring", Rule("allreduce", Choice("ring"), only_powers=True)),
        ("allreduce:mem=device:ring", Rule("allreduce", Choice("ring"), memory="device")),
        ("allreduce:gpus=2:ring", Rule("allreduce", Choice("ring"), gpus=2)),
        ("allreduce:ring/8", Rule("allreduce", Choice("ring", 8))),
        ("allreduce:ring@staged", Rule("allreduce", Choice("ring", 0, "staged"))),
        ("allreduce:ring/2@direct", Rule("allreduce", Choice("ring", 2, "direct"))),
        ("Gatherv:linear", Rule("gather", Choice("linear"))),
        (
            " allreduce : mem=host : 1K-2K : p=2-8 : p=pow2 : ring/3 ",
            Rule("allreduce", Choice("ring", 3), K, 2 * K, (2, 8), True, "host"),
        ),
    ],
)
def test_grammar(text, rule):
    assert parse_rules(text) == (rule,)


def test_rules_are_parted_by_semicolons_and_lines_and_may_be_commented():
    text = "# a table\nallreduce:ring; bcast:linear;\n\n  reduce:binomial  # why; not this:\n;;"
    assert [str(rule) for rule in parse_rules(text)] == ["allreduce:ring", "bcast:linear", "reduce:binomial"]
    assert parse_rules("") == ()


@pytest.mark.parametrize("bound", [1, 64 * K, 1 << 30])
def test_the_lower_bound_is_included_and_the_upper_is_not(bound):
    text = f"allreduce:0-{bound}:linear; allreduce:{bound}-inf:ring"
    assert [decides(text, n) for n in (bound - 1, bound, bound + 1)] == ["linear", "ring", "ring"]


@pytest.mark.case("TUNE-SIZE")
@pytest.mark.parametrize("bound", [K, 64 * K])
def test_the_boundaries_of_a_plan_are_exact(bound):
    """One byte less, the same and one more are told apart."""
    with mpicoll.override(algorithms=f"allreduce:0-{bound}:linear; allreduce:{bound}-inf:ring"):
        plans = [mpicoll.plan("allreduce", size=4, nbytes=n).algorithm for n in (bound - 1, bound, bound + 1)]
    assert plans == ["linear", "ring", "ring"]


def test_both_numbers_of_ranks_are_included():
    found = [decides("allreduce:p=3-5:ring", 1, size) for size in range(1, 8)]
    assert found == [None, None, "ring", "ring", "ring", None, None]
    assert [decides("allreduce:p=4:ring", 1, size) for size in (3, 4, 5)] == [None, "ring", None]


def test_powers_of_two():
    found = [size for size in range(1, 40) if decides("allreduce:p=pow2:ring", 1, size)]
    assert found == [1, 2, 4, 8, 16, 32]


def test_memory_and_collective_must_match():
    assert decides("allreduce:mem=device:ring", 1, memory="host") is None
    assert decides("allreduce:mem=device:ring", 1, memory="device") == "ring"
    assert decides("reduce:ring", 1) is None


def test_the_number_of_gpus_must_match_where_it_is_given():
    (rule,), (any_number,) = parse_rules("allreduce:gpus=2:ring"), parse_rules("allreduce:ring")
    assert [rule.matches("allreduce", 1, 4, "device", gpus) for gpus in (0, 1, 2, 4)] == [False, False, True, False]
    assert all(any_number.matches("allreduce", 1, 4, "device", gpus) for gpus in (0, 1, 2, 4))


@pytest.mark.parametrize(
    ("condition", "speaks"),
    [
        ("hosts=2", ["0-3,4-7", "0-4,5-7"]),
        ("hosts=2-4", ["0-3,4-7", "0-4,5-7", "0-1,2-3,4-5,6-7"]),
        ("hosts=1", ["flat"]),
        ("perhost=4", ["0-3,4-7"]),
        ("perhost=2-4", ["0-3,4-7", "0-1,2-3,4-5,6-7"]),
        ("hosts=2:perhost=3-5", ["0-3,4-7", "0-4,5-7"]),
        ("perhost=8", ["flat"]),
    ],
)
def test_hosts_and_the_ranks_of_each_must_match_where_they_are_given(condition, speaks):
    (rule,) = parse_rules(f"allreduce:{condition}:ring")
    layouts = ["flat", "0-3,4-7", "0-4,5-7", "0-1,2-3,4-5,6-7"]
    assert [text for text in layouts if rule.matches("allreduce", 1, 8, "host", 0, forced(text, 8))] == speaks
    assert str(rule) == f"allreduce:{condition}:ring"


@pytest.mark.parametrize("text", ["hosts=0", "hosts=", "hosts=3-2", "perhost=two", "perhost=1-"])
def test_a_number_of_hosts_that_is_none(text):
    with pytest.raises(ValueError, match=r"is not a number of|empty range of"):
        parse_rules(f"allreduce:{text}:ring")


def test_a_mistake_among_several_lines_names_its_line():
    with pytest.raises(ValueError, match=r"^line 3, rule 'bcast:rings': bcast: no algorithm 'rings'"):
        parse_rules("# mine\nallreduce:ring\nbcast:linear; bcast:rings\n")


def test_a_size_that_not_all_ranks_know_matches_only_rules_without_sizes():
    text = "gather:0-inf:binomial; gather:0-1T:ring; gather:1-inf:ring; gather:linear"
    assert decides("gather:0-1T:ring; gather:1-inf:ring; gather:linear", None, collective="gather") == "linear"
    assert decides(text, None, collective="gather") == "binomial"  # 0-inf is every size


def test_the_first_rule_that_matches_decides():
    text = "allreduce:p=8:linear; allreduce:0-1K:one_shot; allreduce:ring; allreduce:linear"
    assert [decides(text, *call) for call in ((10, 8), (10, 4), (K, 4))] == ["linear", "one_shot", "ring"]


@pytest.mark.case("TUNE-SIZE")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ring", "needs a collective, a colon and an algorithm"),
        ("allreduse:ring", "no collective 'allreduse'"),
        ("allreduce:rings", "no algorithm 'rings'; known: .*ring"),
        ("allreduce:", "'' is not of the form"),
        ("allreduce:Ring", "'Ring' is not of the form"),
        ("allreduce:ring/", "'ring/' is not of the form"),
        ("allreduce:ring/x", "'ring/x' is not of the form"),
        ("allreduce:ring/-1", "'ring/-1' is not of the form"),
        ("allreduce:ring/0", "the number of segments is at least 1"),
        ("allreduce:ring@", "'ring@' is not of the form"),
        ("allreduce:ring@teleport", "unknown path 'teleport'; known: host, mapped, bridged, direct, staged"),
        ("allreduce:ring@staged/2", "'ring@staged/2' is not of the form"),
        ("allreduce:0-64Q:ring", "'64Q' is not a number of bytes"),
        ("allreduce:-64K:ring", "'' is not a number of bytes"),
        ("allreduce:some-64K:ring", "'some' is not a number of bytes"),
        ("allreduce:64K-64K:ring", "empty range '64K-64K'"),
        ("allreduce:64K-1K:ring", "empty range '64K-1K'"),
        ("allreduce:p=four:ring", "'four' is not a number of ranks"),
        ("allreduce:p=:ring", "'' is not a number of ranks"),
        ("allreduce:p=2-:ring", "'2-' is not a number of ranks"),
        ("allreduce:p=8-2:ring", "empty range .*8-2"),
        ("allreduce:p=0-2:ring", "empty range .*0-2"),
        ("allreduce:gpus=0:ring", "'0' is not a number of GPUs, 1 or more"),
        ("allreduce:gpus=two:ring", "'two' is not a number of GPUs"),
        ("allreduce:mem=gpu:ring", "'gpu' is neither host nor device"),
        ("allreduce:root=0:ring", "unknown condition 'root'; known: p, mem, gpus, hosts, perhost, and a range"),
        ("allreduce:ring:0-64K", "is not of the form"),
        ("allreduce:0-1K:2K-4K:ring", "': .*2K-4K"),
        ("allreduce:p=2:p=4:ring", "': .*p"),
        ("allreduce:mem=host:mem=device:ring", "': .*mem"),
    ],
)
def test_every_mistake_quotes_the_rule_and_what_is_wrong(text, what):
    """The other rules are not quoted."""
    with pytest.raises(ValueError, match=what) as caught:
        parse_rules(f"bcast:ring; {text}; reduce:ring")
    assert f"rule {text!r}: " in str(caught.value)
    assert "bcast:ring" not in str(caught.value)


@pytest.mark.parametrize("text", ["ring", "ring/8", "one_shot@staged", "a1_/12@host"])
def test_a_choice_is_written_as_it_is_read(text):
    assert str(parse_choice(text)) == text


CHOICES = st.builds(Choice, st.just("linear"), st.integers(0, 64), st.sampled_from(["", *PATHS]))


@st.composite
def rules(draw):
    low = draw(st.integers(0, 1 << 40))
    high = draw(st.integers(low + 1, 1 << 41) | st.just(1 << 62))
    first = draw(st.integers(1, 500))
    ranks = draw(st.integers(first, 1000).map(lambda last: (first, last)) | st.just((1, 1 << 30)))
    memory = draw(st.sampled_from(["", "host", "device"]))
    name = draw(st.sampled_from(list(catalogue())))
    counts = st.integers(1, 99).flatmap(lambda few: st.integers(few, 99).map(lambda many: (few, many))) | st.just(ANY)
    where = draw(counts), draw(counts)
    return Rule(name, draw(CHOICES), low, high, ranks, draw(st.booleans()), memory, draw(st.integers(0, 9)), *where)


@pytest.mark.slow
@given(rules())
def test_a_rule_is_written_as_it_is_read(rule):
    assert parse_rules(str(rule)) == (rule,)


@pytest.mark.slow
@given(st.lists(rules(), max_size=4))
def test_so_are_many(many):
    assert parse_rules("; ".join(map(str, many))) == tuple(many)
    assert parse_rules("\n".join(map(str, many))) == tuple(many)
