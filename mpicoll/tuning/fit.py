"""The parameters of a path's cost model, fitted to measured times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpicoll.algorithms import registry
from mpicoll.analysis.cost import CostModel
from mpicoll.analysis.segments import pieces
from mpicoll.dispatch.measured import Cell
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import Choice

#: parameters that are fitted
PARAMETERS = tuple(field.name for field in fields(CostModel) if field.name not in ("call_byte", "source"))
#: models in which one parameter is 1 and the others are 0: a cost is the sum of its shares
_UNITS = tuple(CostModel(*map(float, row)) for row in np.eye(len(PARAMETERS)))


@dataclass(frozen=True)
class Sample:
    """A measured time and its shares: the cost for each parameter alone."""

    seconds: float
    shares: tuple[float, ...]


def samples(cells: Iterable[Cell], path: str, model: CostModel) -> list[Sample]:
    """Return the measured times of a path.

    Args:
        cells: what was measured.
        path: its name.
        model: says how a path that takes whole blocks cuts them.
    """
    found = []
    for cell in cells:
        for choice, seconds in cell.times.items():
            if (choice.path or cell.memory) == path:
                found.append(Sample(seconds, shares(cell, choice, path, model)))
    return [one for one in found if any(one.shares)]


def shares(cell: Cell, choice: Choice, path: str, model: CostModel) -> tuple[float, ...]:
    """Return the cost of a measured choice for each parameter alone; arguments as in `samples`."""
    card, row = registry.get(cell.collective, choice.algorithm), PATHS[path]
    if not card.cost:
        return (0.0,) * len(PARAMETERS)
    cut = choice.segments or 1 if row.takes_segments else pieces(card, model, cell.size, cell.nbytes, 0, row.wave)
    return tuple(unit.seconds(card.cost, cell.size, cell.nbytes, cut) for unit in _UNITS)


def fitted(found: list[Sample]) -> dict[str, float]:
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


def model_of(cells: Iterable[Cell], path: str, before: CostModel, source: str) -> CostModel | None:
    """Return a path's model fitted to what was measured, None for too few times.

    Args:
        cells: what was measured.
        path: its name.
        before: the model so far; it stays what is not fitted.
        source: where the times come from.
    """
    found = samples(cells, path, before)
    if len(found) <= len(PARAMETERS):
        return None
    return CostModel(**fitted(found), call_byte=0.0, source=source)
