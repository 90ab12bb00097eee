"""docs/performance.md is made of the files in bench/results."""

import json
import re
from pathlib import Path

import pytest

import mpicoll
from mpicoll.bench.output.results import SCHEMA
from mpicoll.bench.request.cases import CALLS, make_case
from performance import baselines, regret, runs
from performance.claims import CLAIMS, Claim, sentences
from performance.page import HEAD, performance_page

ROOT = Path(mpicoll.__file__).parent.parent
SIZES = [8, 65536, 1 << 30]
GPUS = ["GPU 0 NVIDIA H100 80GB HBM3 at 00:01", "GPU 1 NVIDIA H100 80GB HBM3 at 00:02"]


def measured(op, nbytes, ours, theirs, in_place=False, ranks=2):
    """A row of the benchmark beside NCCL."""
    call = CALLS[op]
    case = make_case(call, nbytes, "float32", ranks, "SUM", 0)
    row = {"mode": "times", "op": op, "collective": call.row.name, "bytes": case.nbytes, "dtype": "float32"}
    row |= {"redop": case.redop or None, "root": 0 if call.row.rooted else None, "in_place": in_place, "ranks": ranks}
    times = {"mpicoll": {"median": ours}} | ({"nccl": {"median": theirs}} if theirs else {})
    return row | {
        "memory": "device",
        "times": times,
        "figures": {"busbw": {"value": 100.0, "unit": "GB/s"}},
        "wrong": 0,
    }


def cell(value, half_width=1.0, reason="cost model for host: fitted", errors=(), **more):
    """A row of `--regret`."""
    figures = {"regret": value, "regret, ties as 0": value / 2, "half-width": half_width}
    figures |= {f"error way{k}": error for k, error in enumerate(errors)}
    row = {"mode": "regret", "op": "bcast", "bytes": 24, "ranks": 2, "memory": "host", "reason": reason}
    return row | {"figures": {name: {"value": one, "unit": "%"} for name, one in figures.items()}} | more


def written(folder, name, rows, gpus=GPUS, date="2026-11-30", ranks=2):
    """A run that is written to a file and found in its folder."""
    facts = {"command": "python -m mpicoll.bench --baseline nccl --json run.json", "date": f"{date}T12:00:00"}
    facts |= {
        "mpicoll": "0.1.0",
        "commit": "cafe" * 10,
        "ranks": ranks,
        "cores": {"vm": 4},
        "cpu": "a CPU",
        "gpus": gpus,
    }
    facts |= {"mpi": "MPICH Version: 5.0.2", "mpi4py": "4.1.2", "variables": {"NCCL_NVLS_ENABLE": "0"}}
    header = {"kind": "header", "schema": SCHEMA, "facts": facts, "options": {"sizes": SIZES}}
    lines = [header, *({"kind": "row", **row} for row in rows)]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return next(run for run in runs.newest(folder) if run.path.name == name)


ROWS = [
    measured("allreduce", 8, 40.0, 30.0),
    measured("allreduce", 8, 50.0, 35.0),  # another algorithm, slower
    measured("allreduce", 8, 10.0, 35.0, in_place=True),
    measured("allreduce", 65536, 50.0, 25.0),
    measured("alltoall", 8, 20.0, 20.0),
    measured("bcast", 1 << 30, 5000.0, 5000.0, in_place=True),
    measured("allgatherv", 8, 5.0, 5.0),  # blocks are uneven
    measured("scan", 8, 5.0, None),
]


def test_cells_are_those_asked_for(tmp_path):
    text = baselines.against_one(written(tmp_path, "2026-11-30-baselines-2xH100.json", ROWS))
    assert "|  | 8 B | 64 KiB | 1 GiB |" in text
    assert "| allreduce | *0.75* | *0.50* | - |" in text
    assert "| alltoall | 1.00 | - | - |" in text
    assert "| bcast | - | - | 1.00 |" in text
    assert "| allreduce | 40.0 / 30.0 | 50.0 / 25.0 | - |" in text
    assert "scan" not in text
    assert "allgather" not in text


def test_bytes_asked_for_may_be_fewer_than_a_call_has(tmp_path):
    rows = [measured("alltoall", 8, 20.0, 20.0, ranks=4)]
    run = written(tmp_path, "2026-11-30-baselines-4xH100.json", rows)
    assert rows[0]["bytes"] == 16
    assert list(baselines.cells(run, "nccl", 4)) == [("alltoall", 8)]


def test_figures_of_claims_are_computed(tmp_path):
    run = written(tmp_path, "2026-11-30-baselines-2xH100.json", ROWS)
    found = [text for _, text in sentences([run])]
    assert found == [
        "On 2 H100, an allreduce of 8 B takes 40.0 us, 1.33 of NCCL's time",
        "On 2 H100, 2 of 4 calls of 8 B to 1 GiB are as fast as NCCL's or faster: t(NCCL) / t(mpicoll) is 0.88 in half "
        "of them, 0.50 at the least (allreduce of 64 KiB) and 1.00 at the most",
        "On 2 H100, an allreduce of 64 KiB has a bus bandwidth of 100.0 GB/s, NCCL's has 200.0",
        "On 2 H100, 8 measurements by mpicoll's choice had no wrong elements",
    ]


def test_a_run_says_with_what_it_was_measured(tmp_path):
    run = written(tmp_path, "2026-11-30-baselines-2xH100.json", ROWS)
    assert run.about.startswith(
        "2 H100, 2 ranks; mpicoll 0.1.0 at cafecafecafe, MPICH 5.0.2, mpi4py 4.1.2; 2026-11-30; "
    )
    assert "`NCCL_NVLS_ENABLE=0 mpirun -n 2 python -m mpicoll.bench --baseline nccl`" in run.about
    assert run.program == "mpicoll.bench --baseline nccl"


def test_machines_have_their_groups(tmp_path):
    shared = written(tmp_path, "2026-11-30-baselines-2-ranks-on-1xH100.json", ROWS, gpus=GPUS[:1] * 2)
    host = written(tmp_path, "2026-11-30-baselines-2-cores.json", ROWS, gpus=[])
    nvlink = written(tmp_path, "2026-11-30-baselines-2xH100.json", ROWS)
    assert [run.group for run in (nvlink, shared, host)] == [runs.GPUS, runs.SHARED, runs.HOSTS]
    assert shared.where == "On 1 H100 shared by 2 ranks,"
    assert host.where == "On 4 cores (a CPU) with 2 ranks, MPICH 5.0.2,"


def test_the_newest_file_of_a_kind_and_machine_counts(tmp_path):
    for name in ("2026-11-30-a-2xH100", "2026-11-29-a-2xH100", "2026-11-29-a-4xH100", "2026-11-28-regret"):
        (tmp_path / f"{name}.json").write_text("{}")
    found = [(run.name, run.kind, run.place) for run in runs.newest(tmp_path)]
    assert found == [
        ("2026-11-30-a-2xH100", "a", "2xH100"),
        ("2026-11-29-a-4xH100", "a", "4xH100"),
        ("2026-11-28-regret", "regret", ""),
    ]


def test_regret_is_found_by_the_name_of_its_file(tmp_path):
    table = "tuning table /home/someone/mine.rules: bcast:0-80:linear/1"
    rows = [
        cell(0.0, errors=(2.0, 4.0)),
        cell(1.0, reason=table),
        cell(29.0, 7.0, reason=table, op="scan", errors=(30.0,)),
    ]
    run = written(tmp_path, "2026-11-30-regret-tuned-4-cores.json", rows, gpus=[])
    first, second = (text for _, text in sentences([run]))
    assert "by the user's table (2 cells), the cost model (1 cells) takes 10.0 % longer" in first
    assert "29.0 % at worst (scan of 24 B on 2 ranks); uncertain cells: 1" in first
    assert second.endswith("half of 3 predicted times are off by at most 4.0 %, 95 of 100 by at most 27.4 %")
    text = regret.table([run])
    assert "| 3 | *10.00* | *26.20* | *29.00* | *5.00* | *13.10* | 14.50 | 1 (33 %) | 3 | 4.0 | 27.4 |" in text
    assert "Uncertain: scan 24 B on 2 ranks (±7.0 %)." in text
    assert "someone" not in text


def test_a_packaged_table_is_named():
    rows = [cell(1.0, reason="tuning table packaged h200: bcast:linear/1@mapped"), cell(1.0, reason="asked for")]
    assert regret.Cells(rows).tuned_with == "the packaged table h200 (1 cells), asked for (1 cells)"


def test_goals_of_regret_are_those_of_the_benchmark():
    source = (ROOT / "mpicoll/bench/tables/regret.py").read_text(encoding="utf-8")
    assert f"\nGOALS = {regret.GOALS}\n" in source
    assert f"\nCERTAIN = {regret.UNCERTAIN / 100}\n" in source


def test_every_claim_has_a_file():
    kinds = {run.kind for run in runs.newest()}
    assert not [claim.kind for claim in CLAIMS if "*" not in claim.kind and claim.kind not in kinds]


def test_every_file_is_on_the_page():
    links = re.findall(r"\]\(\.\./bench/results/([^)]+)\)", performance_page())
    assert sorted(set(links)) == sorted(run.path.name for run in runs.newest())


def test_links_within_the_page_lead_somewhere():
    page = performance_page()
    places = {*re.findall(r'<a id="([^"]+)"></a>', page), "regret"}
    notes = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(#([^)]+)\)", page) + re.findall(r"\]\(performance\.md#([^)]+)\)", notes)
    assert links
    assert set(links) <= places


@pytest.mark.parametrize("text", [HEAD.read_text(encoding="utf-8"), *(claim.sentence for claim in CLAIMS)])
def test_no_figure_is_typed_by_hand(text):
    assert not re.findall(r"\d+(?:\.\d+)? (?:us|ms|GB/s|%|times)\b", text)


def test_a_claim_of_nothing_is_no_sentence(tmp_path):
    run = written(tmp_path, "2026-11-30-baselines-2xH100.json", ROWS)
    assert Claim("baselines", "{x} is seen", lambda _: None).of(run) == ""
    assert Claim("other", "{x} is seen", lambda _: {"x": 1}).of(run) == ""
    assert Claim("*line*", "{x} is seen", lambda _: {"x": 1}).of(run) == "On 2 H100, 1 is seen"


def test_versions_of_a_file_without_facts_are_not_made_up(tmp_path):
    for name in ("2026-11-29-groups-2xH200", "2026-11-30-groups-4xH200"):
        (tmp_path / f"{name}.json").write_text('{"halo": {"group": [1.0]}}')
    known, unknown = runs.newest(tmp_path)
    assert "Open MPI" in known.software
    assert unknown.about.startswith("4 H200, 4 ranks; 2026-11-30; `mpirun -n 4 python bench/groups.py`; ")
