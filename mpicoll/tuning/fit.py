"""The parameters of a path's cost model, fitted to measured times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpicoll.algorithms import registry
from mpicoll.analysis.cost import CostModel
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.predict import pieces_on
from mpicoll.dispatch.rules import NATIVE

#: parameters that are fitted
PARAMETERS = tuple(field.name for field in fields(CostModel) if field.name not in ("call_byte", "source"))


def _one_each() -> list[tuple[float, float, float, float, float, float]]:
    """Return the values of all parameters, of which one after the other is 1 and the rest are 0."""
    return [tuple(float(name == one) for name in PARAMETERS) for one in PARAMETERS]  # type: ignore[misc]


#: models in which one parameter is 1 and the others are 0: a cost is the sum of its shares
_UNITS = tuple(CostModel(*row) for row in _one_each())


@dataclass(frozen=True)
class Sample:
    """A measured time and its shares: the cost for each parameter alone."""

    seconds: float
    shares: tuple[float, ...]


def samples(timings: Iterable[Timing], path: str, model: CostModel) -> list[Sample]:
    """Return the measured times of a path.

    Args:
        timings: what was measured.
        path: its name.
        model: says how a path that takes whole blocks cuts them.
    """
    found = []
    for timing in timings:
        for choice, seconds in timing.whole.items():
            if choice.path != path or choice.algorithm == NATIVE:
                continue
            card = registry.get(timing.collective, choice.algorithm)
            if card.cost and not card.by_hosts:  # whose cost is not that of all ranks
                cut = pieces_on(path, card, model, timing.size, timing.nbytes, choice.segments)
                found.append(Sample(seconds, shares(card.cost, timing.size, timing.nbytes, cut)))
    return [one for one in found if any(one.shares)]


def shares(cost: str, p: int, n: int, s: int) -> tuple[float, ...]:
    """Return a cost for each parameter alone; arguments as in `CostModel.seconds`."""
    return tuple(unit.seconds(cost, p, n, s) for unit in _UNITS)


def fitted(found: Sequence[Sample]) -> dict[str, float]:
    """Return the parameters with the least squares of relative errors, none below 0."""
    relative = np.array([np.array(one.shares) / one.seconds for one in found])
    scale = np.abs(relative).max(axis=0)
    scale[scale == 0] = 1
    values = not_negative(relative / scale, np.ones(len(found))) / scale
    return dict(zip(PARAMETERS, map(float, values), strict=True))


def not_negative(matrix: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a solution of the least squares without negative parts: the most negative one is left out, and so on."""
    used = list(range(matrix.shape[1]))
    found = np.zeros(matrix.shape[1])
    while used:
        solution = np.linalg.lstsq(matrix[:, used], wanted, rcond=None)[0]
        least = int(np.argmin(solution))
        if solution[least] >= 0:
            found[used] = solution
            break
        del used[least]
    return found


def model_of(timings: Iterable[Timing], path: str, before: CostModel, source: str) -> CostModel | None:
    """Return a path's model fitted to what was measured, None for too few times.

    Args:
        timings: what was measured.
        path: its name.
        before: the model so far; it stays what is not fitted.
        source: where the times come from.
    """
    found = samples(timings, path, before)
    if len(found) <= len(PARAMETERS):
        return None
    return CostModel(**fitted(found), call_byte=0.0, source=source)
