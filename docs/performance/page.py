"""The page: how times are taken, the claims by groups of machines, regret, tables, and what has no claim."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

from performance import baselines, campaigns, hosts, regret, scale
from performance.claims import sentences
from performance.runs import GPUS, HOSTS, SHARED, Run, newest

GENERATED = "<!-- written by `make tables` from bench/results; edit docs/performance/ instead -->\n"
HEAD = Path(__file__).parent / "head.md"
#: kinds with tables, in the order of the page: title, function of the run
TABLES: dict[str, tuple[str, Callable[[Run], str]]] = {
    "baselines": ("Beside baselines", baselines.against_one),
    "back-to-back": ("Beside NCCL: synchronised, back to back, in graphs", baselines.back_to_back),
    "algorithms": ("Today's choices beside NCCL", baselines.choices),
    "symmetric": ("Beside NCCL and PyTorch", baselines.against_all),
    "sweep": ("Messages alone beside NCCL", baselines.sweep),
    "overhead": ("Calls with other arrays each time", campaigns.calls),
    "breakdown": ("Parts of a call", campaigns.breakdown),
    "groups": ("Groups", campaigns.groups),
    "gradient-buckets": ("Gradients in buckets", campaigns.buckets),
    "gradient-buckets-hidden": ("Gradients in buckets, behind a backward pass", campaigns.buckets),
    "async": ("Overlap of nonblocking calls", campaigns.overlap),
    "on-hosts": ("On several hosts", hosts.table),
    "at-scale": ("On very many hosts", scale.table),
    "planning": ("Plans", campaigns.planning),
    "planning-on-hosts": ("Plans on hosts", campaigns.planning),
    "all-algorithms-direct": ("Validation by messages", lambda _: ""),
    "all-algorithms-staged": ("Validation through host memory", lambda _: ""),
    "gpu-tests": ("Comparisons with NumPy", lambda _: ""),
}


def performance_page() -> str:
    """Return docs/performance.md."""
    runs = newest()
    found = list(sentences(runs))
    shown = {run for run, _ in found}
    parts = [GENERATED, HEAD.read_text(encoding="utf-8"), *_claims(found)]
    table = regret.table(run for run in runs if run in shown and "regret" in run.kind)
    parts += [f"## Regret\n\n{table}\n"] if table else []
    parts += ["## Tables\n", *_tables(run for run in runs if run in shown)]
    return "\n".join([*parts, *_others(run for run in runs if run not in shown)])


def _claims(found: list[tuple[Run, str]]) -> list[str]:
    """Return the claims, a section for each group of machines."""
    parts = []
    for group in (GPUS, SHARED, HOSTS):
        lines = [item(f"{text}; {source(run)}.") for run, text in found if run.group == group]
        parts += [f"## {group}\n", *lines, ""] if lines else []
    return parts


def item(text: str) -> str:
    """Return an item of a list, in lines."""
    return textwrap.fill(f"- {text}", 140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def source(run: Run) -> str:
    """Return the day, the program and the file of a sentence; the link leads to the whole command."""
    where = "regret" if "regret" in run.kind else anchor(run)
    program = f"`{run.program}`, " if run.program else ""
    return f"{run.date}, {program}[{run.name[11:]}](#{where})"


def anchor(run: Run) -> str:
    """Return the name of a run's place on the page."""
    return run.name[11:].lower()


def _tables(runs: Iterable[Run]) -> list[str]:
    """Return a section for each run, by kind."""
    parts, known = [], list(runs)
    for kind, (title, table) in TABLES.items():
        for run in (run for run in known if run.kind == kind):
            parts.append(f'<a id="{anchor(run)}"></a>\n\n### {title}: {run.title}\n\n{run.about}\n')
            parts += [f"{text}\n" for text in [table(run)] if text]
    return parts


def _others(runs: Iterable[Run]) -> list[str]:
    """Return a section of the files that no claim is made from."""
    lines = [f"- [{run.path.name}](../bench/results/{run.path.name})" for run in runs]
    note = "[measurements.md](measurements.md) has notes on these, by hand; no sentence above is made from them."
    return [f"## Other files\n\n{note}\n", *lines, ""] if lines else []


def quoted() -> str:
    """Return the claims that README quotes."""
    return "\n".join(item(f"{text} ({run.date}).") for run, text in sentences(newest(), readme=True))
