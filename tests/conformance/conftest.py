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
    """How many tests ran, by file."""

    def __init__(self) -> None:
        self.least: dict[str, int] = {}
        self.passed: Counter[str] = Counter()
        self.skipped = 0
        self.missing: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note what there must be."""
        for item in items:
            self.least = item.module.LEAST  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Count one test."""
        report = yield
        if report.skipped:
            self.skipped += 1
        elif report.when == "call" and report.passed:
            self.passed[item.cls.source] += 1  # type: ignore[attr-defined]
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it."""
        ran = self.passed.total()
        terminalreporter.line(f"conformance: {ran} tests of mpi4py ran, mpi4py skipped {self.skipped}")
        for text in self.missing:
            terminalreporter.line(f"  MISSING: {text}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where tests are missing, unless the user asked for a few of them."""
        options = session.config.option
        if options.keyword or options.markexpr or options.collectonly:
            return
        self.missing = [
            f"of {name} {self.passed[name]} tests passed, not at least {least}"
            for name, least in self.least.items()
            if self.passed[name] < least
        ]
        if self.missing or not self.least:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
