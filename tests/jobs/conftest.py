"""What tests in jobs of their own share: a job's program is a text, and what all programs have comes before it."""

import functools
import textwrap

import pytest

from jobs.runner import LIMIT, START, TOGETHER, Job, python, script


def pytest_collection_modifyitems(items):
    """A job takes its time."""
    for item in items:
        if item.path.parent.name == "jobs":
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def job(tmp_path):
    """Run a program, given in parts, and return the job once it has ended."""

    def run(*parts, ranks=3, start=START, launch=TOGETHER, options=(), limit=LIMIT, **environment):
        program = script(tmp_path, *parts, start=start)
        return Job(tmp_path, python(ranks, *launch, program, options=options), **environment).end(limit)

    return run


@pytest.fixture
def plain(job):
    """Run a program as Python does, without mpi4py's help at its end."""
    return functools.partial(job, launch=())


@pytest.fixture
def run(tmp_path):
    """Write a program, run it in some way on some ranks, and return the job once it has ended."""

    def start(*parts, ranks=2, launch=("-m", "mpicoll", "run"), arguments=("program.py",), **environment):
        program = "\n".join(map(textwrap.dedent, parts))
        (tmp_path / "program.py").write_text(program)
        return Job(tmp_path, python(ranks, *launch, *arguments), **environment).end()

    return start
