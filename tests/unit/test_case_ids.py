"""Every case of users that was collected has a test that is marked with its id."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

#: in order of the collection: what most users meet, what is common on clusters, what is rarer
TEXT = """
AWARE-SEGV SYNC-PRODUCER LAYOUT-STRIDED-SEND HANG-EXC NBRED-GPU AWARE-DETECT STAGED-SLOW LAYOUT-FC DTYPE-F16
MISMATCH-COUNT DEV-RANKMAP BIGCOUNT ZERO-ALL UNEVEN-GATHER COMM-LEAK PICKLE-PATH ALIAS GTL-CRAY

SYNC-STREAM SYNC-STAGE DTYPE-BOOL DTYPE-CPLX DTYPE-ENDIAN MISMATCH-DTYPE LAYOUT-OFFSET MULTIRANK-1GPU IPC-VISIBLE
IPC-LEAK MEMTYPE-EARLY CTX-THREAD PARTIAL-API DDT-SLOW OVERSUB TAG-UB BENCH-NOSYNC BENCH-TOL FP-CONSISTENT
ALGO-NPOF2 ALGO-SMALLCOUNT ALGO-NONCOMM TUNE-SIZE INPLACE-RS INPLACE-ROOT GATHER-NONE NB-LIFETIME NB-PROGRESS
NB-ORDER UDOP-GPU TORCH FINALIZE FORK MANAGED MEM-SCRATCH HANG-WHO

THREADS COMM-LAZYDUP ROOT-DIFF GUARD-OVERRUN INPLACE-DISPL INT32-DISPL COUNTS-FORM MIXED-HOSTDEV ZEROD READONLY
NAN-MAX INT-WRAP DTYPE-STRUCT VIEW-ODD SIZE1 SHAPE-KEEP COMM-NULL ABI-MIX
"""
IDS = TEXT.split()


def marked(file):
    """Yield the ids in all markers `case` of a file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
            yield from (argument.value for argument in node.args)


FOUND = {case for file in sorted(TESTS.rglob("test_*.py")) for case in marked(file)}


def test_there_are_72_cases():
    assert len(IDS) == len(set(IDS)) == 72


@pytest.mark.parametrize("case", IDS)
def test_each_case_is_a_test(case):
    assert case in FOUND


def test_no_test_is_marked_with_another_id():
    assert set(IDS) >= FOUND
