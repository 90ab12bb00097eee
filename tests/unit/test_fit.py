"""The fit of a path's model: it finds the parameters of a made-up machine again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms import known
from mpicoll.analysis.cost import CostModel
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import Choice
from mpicoll.dispatch.select import candidates
from mpicoll.tuning.fit import PARAMETERS, model_of, not_negative, samples

TRUE = CostModel(4e-6, 1e-6, 1 / 5e9, 1 / 7e9, 3e-6, 8e-6)
CALLS = ("bcast", "reduce", "allreduce", "allgather", "reduce_scatter", "alltoall")
RANKS = 4


def times(model, path="host", memory="host", noise=0.0):
    """What a machine of that model would have measured, all algorithms on 4 ranks."""
    random = np.random.default_rng(5)
    for name in CALLS:
        for nbytes in (8, 1 << 12, 1 << 18, 1 << 23):
            found = {}
            for one in candidates(Facts(name, RANKS, nbytes, memory, paths=(path,))):
                if one.seconds is not None:
                    card = next(card for card in known(name) if card.name == one.choice.algorithm)
                    seconds = model.seconds(card.cost, RANKS, nbytes, one.choice.segments)
                    choice = Choice(one.choice.algorithm, one.choice.segments, path)
                    found[choice] = seconds * (1 + noise * random.uniform(-1, 1))
            yield Timing(name, nbytes, RANKS, memory, 0, found)


def parameters(model):
    return [getattr(model, name) for name in PARAMETERS]


def test_the_parameters_of_a_made_up_machine_are_found_again():
    found = model_of(times(TRUE), "host", PATHS["host"].model, "made up")
    assert parameters(found) == pytest.approx(parameters(TRUE), rel=1e-3)
    assert (found.call_byte, found.source) == (0.0, "made up")


def test_noise_does_little_to_what_it_predicts():
    found = model_of(times(TRUE, noise=0.05), "host", PATHS["host"].model, "")
    errors = []
    for timing in times(TRUE):
        for choice, seconds in timing.times.items():
            card = next(card for card in known(timing.collective) if card.name == choice.algorithm)
            errors.append(abs(found.seconds(card.cost, RANKS, timing.nbytes, choice.segments) / seconds - 1))
    assert np.median(errors) < 0.02
    assert np.percentile(errors, 95) < 0.10


def test_a_machine_without_a_cost_is_given_none_below_0():
    free = CostModel(4e-6, 0.0, 1 / 5e9, 0.0, 0.0)
    found = model_of(times(free, noise=0.2), "host", PATHS["host"].model, "")
    assert min(parameters(found)) >= 0
    assert found.alpha == pytest.approx(4e-6, rel=0.2)


def test_only_times_of_the_path_count():
    both = [*times(TRUE, "direct", "device"), *times(CostModel(1, 1, 1, 1, 1), "staged", "device")]
    found = model_of(both, "direct", PATHS["direct"].model, "")
    assert parameters(found) == pytest.approx(parameters(TRUE), rel=1e-3)
    assert model_of(both, "mapped", PATHS["mapped"].model, "") is None


def test_a_choice_without_a_path_was_on_that_of_its_memory():
    plain = [replace(t, times={replace(c, path=""): s for c, s in t.times.items()}) for t in times(TRUE)]
    assert len(samples(plain, "host", TRUE)) == len(samples(times(TRUE), "host", TRUE)) > 100


def test_too_few_times_make_no_model():
    few = Timing("bcast", 8, RANKS, "host", 0, {Choice("linear", 1, "host"): 1e-5, Choice("ring", 1, "host"): 3e-5})
    assert model_of([few], "host", TRUE, "") is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=3, max_size=12), st.randoms())
def test_no_solution_has_a_negative_part_and_it_is_no_worse_than_nothing(rows, random):
    matrix, wanted = np.array(rows), np.array([random.uniform(0, 5) for _ in rows])
    found = not_negative(matrix, wanted)
    assert found.min() >= 0
    assert np.linalg.norm(matrix @ found - wanted) <= np.linalg.norm(wanted) * (1 + 1e-9)


def test_a_parameter_that_nothing_depends_on_is_0():
    barriers = [Timing("barrier", 0, size, "host", 0, {Choice("dissemination"): size * 1e-6}) for size in range(2, 12)]
    model = model_of(barriers, "host", TRUE, "")
    assert (model.beta, model.gamma) == (0.0, 0.0)
