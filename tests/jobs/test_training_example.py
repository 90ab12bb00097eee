"""The example of data-parallel training: its loss, its measurements, and its drawing."""

import re
from pathlib import Path

import pytest

from jobs.runner import Job, python

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_data_parallel.py"
#: a small network, and few steps
SMALL = "--steps", 12, "--width", 64, "--batch", 128, "--bucket", 8192


def trained(folder, ranks, *options):
    """Return what the example prints."""
    job = Job(folder, python(ranks, EXAMPLE, *SMALL, *options)).end()
    assert job.code == 0, job.output
    return job.output


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_loss_falls_and_is_that_of_one_rank(tmp_path, ranks):
    output = trained(tmp_path, ranks)
    first, last = re.findall(rf"^loss (\S+) -> (\S+) in 12 steps on {ranks} ranks, as on one$", output, re.M)[0]
    assert float(last) < 0.9 * float(first)
    times = re.findall(r"(compute|buckets|one call each|together) (\d+\.\d+) ms", output)
    assert [name for name, _ in times] == ["compute", "buckets", "one call each", "together"]
    assert all(float(value) > 0 for _, value in times)


def test_a_step_is_drawn(tmp_path):
    """Both rows are in the drawing, and a bucket."""
    pytest.importorskip("matplotlib")
    trained(tmp_path, 2, "--timeline", "timeline.svg")
    drawn = (tmp_path / "timeline.svg").read_text()
    names = set(re.findall(r"<!-- ((?:forward|backward|bucket|computation|communication).*?) -->", drawn))
    assert {"computation", "communication"} <= names
    assert any(name.startswith("bucket") for name in names)


@pytest.mark.gpu
def test_the_same_on_gpus(tmp_path):
    assert "as on one" in trained(tmp_path, 2, "--buffers", "cupy")
