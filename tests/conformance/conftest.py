"""Counts what the conformance suite ran: a run that has lost tests must not pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only `make conformance` runs this folder: it needs MPI, and mpi4py's tests."""
    return None if config.getoption("--with-mpi") else True


def pytest_configure(config: pytest.Config) -> None:
    """Count."""
    config.pluginmanager.register(Count())


class Count:
    """How many tests ran as mpi4py wrote them, and how many in another way, by reason."""

    def __init__(self) -> None:
        self.ran = 0
        self.skipped = 0
        self.excepted: Counter[str] = Counter()
        self.missing: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Compare what there is with what there must be."""
        suites = {item.module for item in items if hasattr(item.module, "LEAST")}  # type: ignore[attr-defined]
        for suite in suites:
            here = Counter(item.cls.source for item in items)  # type: ignore[attr-defined]
            self.missing = [
                f"{name} has {here[name]} tests, not at least {least}"
                for name, least in suite.LEAST.items()
                if here[name] < least
            ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Count one test."""
        report = yield
        if report.skipped:
            self.skipped += 1
        elif report.when == "call" and report.passed:
            reason = getattr(item.obj, "excepted", "")  # type: ignore[attr-defined]
            self.excepted[reason] += bool(reason)
            self.ran += not reason
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it."""
        excepted = +self.excepted
        terminalreporter.line(
            f"conformance: {self.ran} tests of mpi4py ran, {excepted.total()} were excepted, "
            f"mpi4py skipped {self.skipped}"
        )
        for reason, number in excepted.items():
            terminalreporter.line(f"  {number} excepted: {reason}")
        for text in self.missing:
            terminalreporter.line(f"  MISSING: {text}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where tests are missing, unless the user asked for a few of them."""
        chosen = session.config.option.keyword or session.config.option.markexpr
        if self.missing and not chosen:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
