"""Markdown tables from a run of the benchmark."""

import importlib.util
from pathlib import Path

import pytest

import mpicoll
from mpicoll.bench.output.results import Results, read
from mpicoll.bench.request.cases import CALLS, make_case

PATH = Path(mpicoll.__file__).parent.parent / "bench" / "table.py"
SPEC = importlib.util.spec_from_file_location("bench_table", PATH)
table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(table)

SIZES = [8, 65536, 1 << 30]


def row(op, nbytes, ours, theirs, in_place=False, ranks=4):
    call = CALLS[op]
    case = make_case(call, nbytes, "float32", ranks, "SUM", 0)
    return {
        "op": op,
        "collective": call.row.name,
        "bytes": case.nbytes,
        "dtype": "float32",
        "redop": case.redop or None,
        "root": 0 if call.row.rooted else None,
        "in_place": in_place,
        "times": {"mpicoll": {"median": ours}} | ({"nccl": {"median": theirs}} if theirs else {}),
    }


def result(rows, ranks=4):
    facts = {
        "ranks": ranks,
        "gpus": ["GPU 0 NVIDIA H100 at 00:01", "GPU 1 NVIDIA H100 at 00:02"],
        "cpu": "a CPU",
        "buffers": "cupy",
        "mpicoll": "0.1.0",
        "commit": "cafe" * 10,
        "mpi": "Open MPI",
        "mpi4py": "4.1.2",
        "baselines": {"nccl": "2.28.3"},
        "date": "2026-11-28T12:00:00",
        "variables": {"NCCL_NVLS_ENABLE": "0"},
        "command": "python -m mpicoll.bench --baseline nccl",
    }
    return {"facts": facts, "options": {"sizes": SIZES}, "rows": rows}


ROWS = [
    row("allreduce", 8, 40.0, 30.0),
    row("allreduce", 8, 50.0, 35.0),  # another algorithm, slower
    row("allreduce", 8, 10.0, 35.0, in_place=True),
    row("allreduce", 65536, 50.0, 25.0),
    row("alltoall", 8, 20.0, 20.0),  # of 16 bytes: one element for each rank
    row("bcast", 1 << 30, 5000.0, 5000.0, in_place=True),
    row("scan", 8, 5.0, None),
]


def test_cells_are_those_asked_for():
    text = table.tables(result(ROWS))
    assert "| | 8 B | 64 KiB | 1 GiB |" in text
    assert "| allreduce | 0.75 | *0.50* | - |" in text
    assert "| alltoall | 1.00 | - | - |" in text
    assert "| bcast | - | - | *1.00* |" in text
    assert "| allreduce | 40.0 | 50.0 | - |\n| NCCL | 30.0 | 25.0 | - |" in text
    assert "| bcast | - | - | 5000 |" in text
    assert "scan" not in text
    assert "4 ranks, NVIDIA H100, cupy arrays; mpicoll 0.1.0 at cafecafecafe" in text
    assert "nccl 2.28.3; 2026-11-28; `NCCL_NVLS_ENABLE=0 mpirun -n 4 python -m mpicoll.bench" in text


def test_targets_are_for_four_ranks():
    two = result([row("allreduce", 65536, 50.0, 5.0, ranks=2)], ranks=2)
    assert "| allreduce | 0.10 |" in table.tables(two)


@pytest.mark.parametrize(
    ("nbytes", "wanted"),
    [(8, 0.75), (4096, 0.75), (65536, 0.6), (1 << 20, 0.6), (1 << 22, 0.7), (1 << 28, 0.95), (1 << 30, 1.0)],
)
def test_targets_of_allreduce(nbytes, wanted):
    assert table.target("allreduce", nbytes, 4) == wanted
    assert table.target("scan", nbytes, 4) == 0


def test_the_page_keeps_what_is_around(tmp_path):
    page, run = tmp_path / "page.md", tmp_path / "run.json"
    written = result(ROWS)
    rows = written.pop("rows")
    results = Results(run)
    results.begin(**written)
    for one in rows:
        results.add("row", **one)
    results.end(verdict="OK")
    page.write_text("above\n<!-- begin here -->\nold\n<!-- end here -->\nbelow\n")
    table.main([str(run), "--into", str(page), "--name", "here"])
    once = page.read_text()
    assert once.startswith("above\n<!-- begin here -->\n\n4 ranks")
    assert once.endswith("|\n\n<!-- end here -->\nbelow\n")
    assert "old" not in once
    table.main([str(run), "--into", str(page), "--name", "here"])
    assert page.read_text() == once


@pytest.mark.parametrize("name", ["baselines-2xH200", "baselines-4xH200"])
def test_kept_results_make_tables(name):
    kept = read(PATH.parent / "results" / f"2026-11-28-{name}.json")
    assert kept["end"]["verdict"] == "OK"
    assert "| allreduce | " in table.tables(kept)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(SystemExit, match="needs one <!-- begin x -->"):
        table.into("nothing", "x", "text")
    with pytest.raises(SystemExit, match="no measurement here has the baseline nccl"):
        table.tables(result([row("scan", 8, 5.0, None)]))
