"""The tutorial: what it shows is made by commands, and it has a place for all that the documents teach."""

import ast
import re
from pathlib import Path

import pytest

import blocks
import mpicoll
import pictures
import run_tutorial

DOCS = Path(mpicoll.__file__).parent.parent / "docs"
PAGE = (DOCS / "tutorial.md").read_text(encoding="utf-8")

#: the headings of the documents that the tutorial replaces
HEADINGS = {
    "notes": [
        "Collective Communication",
        "Overview",
        "Learning Objectives",
        "NCCL (NVIDIA Collective Communications Library)",
        "Collective Operations",
        "AllReduce",
        "AllGather",
        "ReduceScatter",
        "All-to-All",
        "Ring AllReduce Algorithm",
        "Hardware Topology Matters",
        "Intra-Node (NVLink/NVSwitch)",
        "Inter-Node (InfiniBand/RoCE)",
        "Communication-Computation Overlap",
        "Gradient Bucketing",
        "Async Communication",
        "Bandwidth Analysis",
        "Theoretical vs Achieved",
        "Communication Time Formula",
        "Key Papers & Resources",
        "Notes",
    ],
    "puzzles": ["Puzzler 1: Bandwidth and Topology", "Puzzler 2: Collective Performance"],
    "article": [
        "Communication Patterns",
        "Description of the Communication Patterns",
        "Broadcast",
        "Reduce",
        "All Reduce",
        "Barrier",
        "Gather",
        "All-Gather",
        "Scatter",
        "All-to-All",
        "Summary",
        "PyTorch Distributed",
        "References",
    ],
    "guide": [
        "Communication Patterns",
        "Point-to-point communications",
        "Collective communications",
        "Broadcast",
        "Gather",
        "All-gather",
        "Reduce",
        "All-reduce",
        "Scatter",
        "Reduce-Scatter",
        "All-to-all",
        "Algorithms",
        "Ring",
        "Broadcast with unidirectional ring",
        "All-reduce with unidirectional ring",
        "More guides",
    ],
}
#: the calls, options and variables that they name
NAMED = {
    "notes": "init_process_group all_reduce ReduceOp SUM all_gather reduce_scatter DistributedDataParallel "
    "bucket_cap_mb async_op wait FSDP ZeRO",
    "puzzles": "new_group all_reduce reduce broadcast reduce_scatter_tensor all_gather_into_tensor "
    "stream to non_blocking",
    "article": "init_process_group RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT get_rank get_backend "
    "get_world_size broadcast reduce all_reduce gather all_gather scatter all_to_all barrier new_group "
    "torchrun launch nnodes nproc-per-node",
    "guide": "send recv isend irecv broadcast gather all_gather reduce AVG SUM PRODUCT MIN MAX BAND BOR BXOR "
    "all_reduce scatter reduce_scatter all_to_all DistributedDataParallel",
}


def section(name):
    """The text of a section, up to the next one."""
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def table(text):
    """The rows of the tables in a text, without their heads."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if not row[0].strip().startswith("---")][1:]


@pytest.mark.parametrize("document", HEADINGS)
def test_every_section_of_the_documents_has_its_place(document):
    rows = [row for row in table(section("Where each section has its place")) if row[0] == document and len(row) == 3]
    assert [row[1] for row in rows] == HEADINGS[document]
    assert all(row[2] for row in rows)


@pytest.mark.parametrize("document", NAMED)
def test_every_call_of_the_documents_is_translated(document):
    torch = " ".join(row[0] for row in table(section("Translation")))
    names = NAMED[document].split()
    assert not [name for name in names if not re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", torch)]


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", PAGE) if not link.startswith("http")]
    assert len(links) > 50
    assert not [link for link in links if link[0] == "#" and link[1:] not in anchors(PAGE)]
    assert not [link for link in links if link[0] != "#" and not (DOCS / link).exists()]


def test_runs_that_the_page_names_exist():
    runs = re.findall(r"`(bench/results/[^`]+)`", PAGE)
    assert runs and not [run for run in runs if not (DOCS.parent / run).exists()]


def test_every_snippet_asserts_or_prints():
    found = [snippet for snippets in run_tutorial.sections(PAGE).values() for snippet in snippets]
    assert len(found) == PAGE.count("```python\n") > 20
    for line, code, shown in found:
        nodes = list(ast.walk(ast.parse(code)))
        prints = any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print" for node in nodes)
        assert prints == bool(shown), f"tutorial.md:{line}"
        assert prints or any(isinstance(node, ast.Assert) for node in nodes), f"tutorial.md:{line}"


def test_a_block_is_filled_with_what_its_command_prints():
    page = "before\n<!-- output: list barrier -->\nold\n<!-- end -->\nafter\n"
    filled = blocks.filled(page)
    assert filled.startswith(
        "before\n<!-- output: list barrier -->\n```text\n$ python -m mpicoll list barrier\ncollective"
    )
    assert filled.endswith("```\n<!-- end -->\nafter\n") and "dissemination" in filled and "old" not in filled
    assert blocks.filled(filled) == filled


def test_an_output_can_begin_later():
    whole, part = (blocks.shown("show bcast linear --ranks 3", start) for start in ("", "rank "))
    assert "\ncost: " in whole and "\nround 0:" in part
    assert part.startswith("...\nrank ") and whole.endswith(part.removeprefix("..."))


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("<!-- output: list -->\n```text\n```\n", "no `<!-- end -->`"),
        ("<!-- output: list -->\n<!-- table: broadcasts -->\n<!-- end -->\n", "no `<!-- end -->`"),
        ("<!-- output: show bcast rings -->\n<!-- end -->\n", "status 2"),
        ("<!-- output: show bcast ring; from: rank 9 -->\n<!-- end -->\n", "no line 'rank 9'"),
    ],
)
def test_a_block_that_cannot_be_filled_is_an_error(page, why):
    with pytest.raises(ValueError, match=why):
        blocks.filled(page)


def test_the_output_of_a_command_that_fails_is_not_shown(monkeypatch):
    monkeypatch.setattr(blocks, "main", lambda words: print("FAILED", *words) or 1)
    with pytest.raises(ValueError, match="verify bcast: status 1"):
        blocks.shown("verify bcast")


def test_a_picture_is_what_its_command_writes(tmp_path):
    trace = tmp_path / "run.0.json"
    trace.write_text('{"otherData": {"host": "h", "wall_clock": 0}, "traceEvents": []}', encoding="utf-8")
    assert b"traceEvents" in pictures.picture(f"trace {trace} -o FILE")
    with pytest.raises(ValueError, match="no picture"):
        pictures.picture("list barrier")


def test_pictures_are_up_to_date():
    found = {file.name for file in pictures.FOLDER.iterdir()}
    assert found == {*pictures.PICTURES, *pictures.PLOTS, "model.svg", "at-scale.svg"}, "run `make docs`"
    changed = [name for name, command in pictures.PICTURES.items() if made(name) != pictures.picture(command)]
    assert not changed, "run `make docs`"


def made(name):
    return (pictures.FOLDER / name).read_bytes()


def test_every_picture_that_is_wanted_has_its_place():
    places = re.findall(r"<!-- picture: (.*?) -->", PAGE)
    assert len(places) == len(set(places))
    assert set(places) == {*pictures.PICTURES, *pictures.PLOTS}
