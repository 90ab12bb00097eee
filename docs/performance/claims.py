"""The claims: sentences as data.  A claim is made of the newest file of its kind on each machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from performance import figures, hosts, regret, scale
from performance.baselines import BASELINES
from performance.runs import Run

K, M, G = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Claim:
    """A sentence about each run of a kind.

    Attributes:
        kind: of runs; "*regret*" are all whose kind has this word in it.
        sentence: with the names of figures in braces.
        figures: of a run; None where the run has not what the claim is about.
        readme: True for a claim that README quotes, too.
    """

    kind: str
    sentence: str
    figures: Callable[[Run], figures.Figures]
    readme: bool = False

    def of(self, run: Run) -> str:
        """Return the sentence about a run, without its full stop; "" if it is about another one."""
        if not (self.kind.strip("*") in run.kind if "*" in self.kind else self.kind == run.kind):
            return ""
        found = self.figures(run)
        return f"{run.where} {self.sentence.format(**found)}" if found else ""


def sentences(runs: Iterable[Run], *, readme: bool = False) -> Iterator[tuple[Run, str]]:
    """Yield (run, sentence with its source), claim after claim; with `readme` those that README quotes."""
    known = list(runs)
    for claim in CLAIMS:
        for run in known:
            text = claim.of(run) if claim.readme or not readme else ""
            if text:
                yield run, text


CLAIMS = (
    *(
        claim
        for baseline in BASELINES
        for claim in (
            Claim(
                "baselines",
                "an allreduce of {size} takes {ours:.1f} us, {part:.2f} of {other}'s time",
                partial(figures.short_call, baseline=baseline),
                readme=True,
            ),
            Claim(
                "baselines",
                "{faster} of {cells} calls of {from} to {to} are as fast as {other}'s or faster: t({other}) / "
                "t(mpicoll) is {half:.2f} in half of them, {least:.2f} at the least ({which}) and {most:.2f} at "
                "the most",
                partial(figures.all_calls, baseline=baseline),
                readme=True,
            ),
            Claim(
                "baselines",
                "an allreduce of {size} has a bus bandwidth of {ours:.1f} GB/s, {other}'s has {theirs:.1f}",
                partial(figures.long_call, baseline=baseline),
            ),
        )
    ),
    Claim(
        "algorithms",
        "t(NCCL) / t(mpicoll) is {least:.2f} to {most:.2f} from {from} to {to} with what is chosen today",
        partial(figures.choices, least=0, most=16 * M),
        readme=True,
    ),
    Claim(
        "algorithms",
        "t(NCCL) / t(mpicoll) is {least:.2f} to {most:.2f} from {from} to {to} with what is chosen today",
        partial(figures.choices, least=64 * M, most=G),
        readme=True,
    ),
    Claim(
        "*regret*",
        "what mpicoll chooses by {tuned} takes {mean:.1f} % longer than the fastest choice in the mean of {cells} "
        "cells, at most {most:.1f} % in 95 of 100 and {worst:.1f} % at worst ({which}); uncertain cells: {uncertain}",
        regret.claimed,
        readme=True,
    ),
    Claim(
        "*regret*",
        "half of {times} predicted times are off by at most {half:.1f} %, 95 of 100 by at most {most:.1f} %",
        regret.predicted,
    ),
    Claim(
        "back-to-back",
        "an allreduce of {size} takes {replayed:.1f} us in a CUDA graph, NCCL's {nccl_replayed:.1f}; back to back on "
        "a stream it takes {streamed:.1f}, NCCL's {nccl_streamed:.1f}",
        figures.graphs,
    ),
    Claim(
        "back-to-back",
        "in CUDA graphs t(NCCL) / t(mpicoll) is {half:.2f} in half of {cells} calls of {from} to {to}, {least:.2f} "
        "at the least ({which}) and {most:.2f} at the most",
        figures.graph_cells,
    ),
    Claim(
        "symmetric",
        "an allreduce in place of {from} to {to} is {nccl_least:.2f} to {nccl_most:.2f} times as fast as NCCL's, "
        "{torch_least:.2f} to {torch_most:.2f} times as fast as NCCL's through PyTorch, and {kernels_least:.2f} to "
        "{kernels_most:.2f} times as fast as PyTorch's own kernels on symmetric memory",
        figures.symmetric,
    ),
    Claim(
        "sweep",
        "t(NCCL) / t(mpicoll) by messages alone, with the fastest algorithm of each cell, is {short_half:.2f} in half "
        "of the cells below 1 MiB ({short_least:.2f} to {short_most:.2f}) and {long_half:.2f} from 64 MiB on "
        "({long_least:.2f} to {long_most:.2f})",
        figures.messages,
        readme=True,
    ),
    Claim(
        "overhead",
        "a repeated allreduce of {size} takes {same:.1f} us; with fresh views of the arrays it takes {views} more, "
        "with lists of array, count and type {lists}, with a new size {new}",
        figures.other_arrays,
    ),
    Claim(
        "overhead",
        "NCCL through PyTorch takes {same:.2f} times as long as mpicoll for a repeated allreduce of {size}, and "
        "{least:.2f} times at the least ({which})",
        figures.torch_calls,
    ),
    Claim(
        "overhead",
        "an allreduce of {size} takes {ours:.1f} us, its messages and NumPy's sum by hand {hand:.1f} us",
        figures.by_hand,
    ),
    Claim(
        "breakdown",
        "{share:.0f} % of the {total:.1f} us of an {what} are the wait for the stream",
        figures.waiting,
    ),
    Claim(
        "groups",
        "a halo of 64 KiB with both neighbours takes {group:.1f} us as a group, {replayed:.1f} us replayed in a CUDA "
        "graph and {mpi:.1f} us by the MPI's messages",
        figures.halo,
    ),
    Claim(
        "groups",
        "allreduces of {what} take {list:.0f} us as a list, {group:.0f} us as a group and {each:.0f} us one by one",
        figures.many_calls,
    ),
    Claim(
        "gradient-buckets",
        "averages of {what} take {buckets} ms in buckets and {each} ms one by one, {ratio:.1f} times as long; of "
        "{other} it is {less:.1f} times",
        figures.gradients,
    ),
    Claim(
        "gradient-buckets",
        "a backward pass hides {parts} % of the buckets' time for layers of width {widths} (below 0 the two take "
        "longer together)",
        figures.hidden,
    ),
    Claim(
        "gradient-buckets-hidden",
        "a backward pass hides {parts} % of the buckets' time for layers of width {widths} (below 0 the two take "
        "longer together)",
        figures.hidden,
    ),
    Claim(
        "async",
        "a kernel hides of nonblocking calls of {size} on the path {paths}: {what}",
        figures.overlapping,
    ),
    Claim(
        "on-hosts",
        "imitated as {layout}, with links of {links}: calls of {from} to {to} take at most {flat:.2f} times as long as "
        "by the best flat algorithm ({which}), those of a few bytes {short:.2f} times; {good} of {long} calls of "
        "{least} or more are {faster} times as fast as the MPI's own or within {near:.0f} % of the bound, with at most "
        "{bytes:.2f} times the least bytes between hosts",
        hosts.figures,
    ),
    Claim(
        "at-scale",
        "an allreduce of {size} on {ranks:,} ranks, {hosts:,} hosts of 8 H100, is predicted from the ranks' own "
        "schedules to take {blocks:,.0f} us by `striped` where hosts are blocks of ranks, and {turns:,.0f} us where "
        "they take ranks in turns; by `{name_blocks}`, the fastest flat one in blocks, {flat_blocks:,.0f} and "
        "{wrong:,.0f} us",
        scale.figures,
    ),
    Claim(
        "planning",
        "the plan of an allreduce of {size} on {ranks:,} ranks takes {ms:.0f} ms of processor time and {mib:.1f} MiB",
        figures.planned,
    ),
    Claim(
        "planning-on-hosts",
        "the plan of a rank's {collectives} of {size} on {ranks:,} ranks of {hosts:,} hosts takes at most {ms:.0f} ms "
        "of processor time and {mib:.1f} MiB",
        figures.planned_on_hosts,
    ),
    *(
        Claim(kind, "{number} measurements {how} had {wrong} wrong elements", figures.validated)
        for kind in ("baselines", "all-algorithms-direct", "all-algorithms-staged", "symmetric")
    ),
    Claim(
        "gpu-tests",
        "{wrong} of {number} comparisons with NumPy, of every collective by every algorithm, were wrong",
        figures.compared,
    ),
)
