"""Fits the cost model of a path to a run in which all algorithms were timed (`bench/sweep_algorithms.py --once`).

    python bench/fit_models.py bench/results/2026-11-28-algorithms-4xH200.json --ranks 4 --path mapped

Least squares of the relative errors, no parameter below 0, as the tuner fits them.  Prints, for the model of
`analysis/cost.py` as it is and for the fitted one, by how much a prediction is off, and what it costs to call what
the model holds for the best algorithm instead of what was the fastest.  Messages that a run does not name the
segments of are taken to be cut as the model of today says, so fit before the model is changed.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from mpicoll.algorithms import registry
from mpicoll.bench.output.results import read
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.predict import best_segments, waves
from mpicoll.tuning import fit
from mpicoll.tuning.fit import PARAMETERS


def measured(rows, ranks, path):
    """Yield (collective, bytes), seconds of an algorithm, and each parameter's share in its cost."""
    for row in rows:
        for name, times in row["ours"].items():
            choice, _, where = name.partition("@")
            algorithm, _, cut = choice.partition("/")
            if where != path:
                continue
            card = registry.get(row["collective"], algorithm)
            facts = Facts(row["collective"], ranks, row["nbytes"], "device")
            whole = not PATHS[path].takes_segments
            pieces = waves(card, facts, path) if whole else int(cut or best_segments(card, facts, path)[0])
            shares = fit.shares(card.cost, ranks, row["nbytes"], pieces)
            yield (row["collective"], row["nbytes"]), times[0] * 1e-6, shares


def fitted(lines):
    """Return the parameters, as the tuner fits them."""
    return list(fit.fitted([fit.Sample(seconds, shares) for _, seconds, shares in lines]).values())


def judged(lines, parameters):
    """Return by what factor half of the predictions are off at most, and 9 of 10; and the mean and worst regret."""
    cells, off = defaultdict(list), []
    for cell, seconds, shares in lines:
        predicted = float(np.dot(shares, parameters))
        cells[cell].append((predicted, seconds))
        off.append(abs(np.log(predicted / seconds)))
    # of what is predicted alike, the first is called, as select does
    called = [min(found, key=lambda one: one[0])[1] for found in cells.values()]
    regret = [mine / min(seconds for _, seconds in found) for mine, found in zip(called, cells.values(), strict=True)]
    half, most = np.exp(np.percentile(off, [50, 90]))
    mean, worst = np.mean(regret), max(regret)
    return f"off by {half:.2f} (half), {most:.2f} (9 of 10); regret {mean:.3f} (mean), {worst:.2f} (worst)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--path", default="mapped")
    options = parser.parse_args()
    lines = list(measured(read(options.run)["rows"], options.ranks, options.path))
    found = fitted(lines)
    now = [getattr(PATHS[options.path].model, name) for name in PARAMETERS]
    print(f"{len(lines)} times; now: {judged(lines, now)}")
    print(f"fitted: {judged(lines, found)}")
    print(", ".join(f"{name}={value:.3g}" for name, value in zip(PARAMETERS, found, strict=True)))


if __name__ == "__main__":
    main()
