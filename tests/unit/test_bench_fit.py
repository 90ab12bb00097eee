"""Fitting the cost model to measured times."""

import importlib.util
import sys
from pathlib import Path

import pytest

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.analysis.cost import CostModel
from mpicoll.bench.output.results import Results, read
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.predict import best_segments, waves

PATH = Path(mpicoll.__file__).parent.parent / "bench" / "fit_models.py"
SPEC = importlib.util.spec_from_file_location("bench_fit_models", PATH)
fit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fit)

RANKS = 4
TRUE = CostModel(2e-6, 0.1e-6, 1 / 100e9, 1 / 900e9, 3e-6, 9e-6)


def row(collective, nbytes, path):
    """A cell in which every algorithm takes as long as TRUE says."""
    ours, facts = {}, Facts(collective, RANKS, nbytes, "device")
    for card in registry.usable(collective, RANKS):
        pieces = waves(card, facts, path) if not PATHS[path].takes_segments else best_segments(card, facts, path)[0]
        seconds = TRUE.seconds(card.cost, RANKS, nbytes, pieces)
        ours[f"{card.name}@{path}"] = [seconds * 1e6, 0.0]
    return {"collective": collective, "nbytes": nbytes, "nccl": [1.0, 1.0], "ours": ours}


def rows(path):
    names = ("allreduce", "bcast", "reduce", "allgather", "alltoall")
    return [row(name, nbytes, path) for name in names for nbytes in (8, 1 << 14, 1 << 20, 1 << 26)]


@pytest.mark.parametrize("path", ["mapped", "direct"])
def test_parameters_are_found_again(path):
    lines = list(fit.measured(rows(path), RANKS, path))
    found = fit.fitted(lines)
    assert found == pytest.approx([getattr(TRUE, name) for name in fit.PARAMETERS], rel=1e-3, abs=1e-9)
    assert fit.judged(lines, found).startswith("off by 1.00 (half), 1.00 (9 of 10); regret 1.000 (mean), 1.00 (worst)")


def test_only_the_path_that_is_asked_for_counts():
    assert list(fit.measured(rows("mapped"), RANKS, "direct")) == []


def test_it_prints_the_model_as_it_is_and_the_fitted_one(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run.json"
    results = Results(run)
    results.begin()
    for one in rows("mapped"):
        results.add("row", **one)
    results.end()
    monkeypatch.setattr(sys, "argv", ["fit_models.py", str(run), "--ranks", str(RANKS)])
    fit.main()
    out = capsys.readouterr().out.splitlines()
    assert "now: off by" in out[0]
    assert not out[0].endswith(out[1].removeprefix("fitted: "))
    assert out[2].startswith("alpha=2e-06, extra=1e-07, beta=1e-11")


def test_the_packaged_model_is_fitted_to_the_run_that_is_kept():
    """The path mapped alone: segments of the others were those that the model before said."""
    kept = PATH.parent / "results" / "2026-11-28-algorithms-4xH200.json"
    lines = list(fit.measured(read(kept)["rows"], RANKS, "mapped"))
    assert f"{len(lines)} times" in PATHS["mapped"].model.source
    found = fit.fitted(lines)
    packaged = [getattr(PATHS["mapped"].model, name) for name in fit.PARAMETERS]
    assert packaged == pytest.approx(found, rel=0.02, abs=1e-13)
