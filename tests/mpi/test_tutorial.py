"""The Python of the tutorial runs, and prints what the page says."""

import pytest
from mpi4py import MPI

import run_tutorial

SECTIONS = run_tutorial.sections(run_tutorial.PAGE.read_text(encoding="utf-8"))


@pytest.mark.many_ranks
@pytest.mark.ranks(4)
@pytest.mark.parametrize("section", [name for name in SECTIONS if name != run_tutorial.START])
def test_snippets_print_what_the_page_shows(section):
    run_tutorial.run([*SECTIONS[run_tutorial.START], *SECTIONS[section]], MPI.COMM_WORLD)


@pytest.mark.ranks(2, 3)
def test_another_output_is_told_with_its_line():
    wrong = [(7, "print('one')\n", "one\n" * MPI.COMM_WORLD.size), (9, "print('two')\n", "one\n")]
    with pytest.raises(AssertionError, match=r"tutorial.md:9: printed\ntwo\n"):
        run_tutorial.run(wrong, MPI.COMM_WORLD)
