"""Campaign: the path mapped against NCCL: synchronised each call, back to back on the stream, in CUDA graphs.

    NCCL_NVLS_ENABLE=0 mpirun -n 4 python bench/back_to_back.py --json back_to_back.json

float32, ours as chosen; both interleaved in one run.  Synchronised: the median over iterations of the
maximum over ranks.  Back to back and graphs: the time of many calls divided by their number, the
maximum over ranks, the median of several rounds.
"""

import argparse
from pathlib import Path

from sweep_algorithms import NAMES, Sweep, begun

from mpicoll.settings import format_bytes

SIZES = [8, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 24, 1 << 26]


class BackToBack(Sweep):
    def replayed(self, call, calls):
        """Microseconds of a call among many in one graph."""
        call()
        self.stream.synchronize()
        self.stream.begin_capture()
        for _ in range(calls):
            call()
        graph = self.stream.end_capture()
        return self.streamed(lambda: graph.launch(self.stream), 3) / calls

    def row(self, name, nbytes):
        ours, theirs = self.calls(name, nbytes)
        many = 100 if nbytes <= 1 << 20 else 20
        found = {"collective": name, "nbytes": nbytes}
        for who, call in (("ours", lambda: ours(None)), ("nccl", theirs)):
            synchronised = self.median(call, 60 if nbytes <= 1 << 22 else 15)
            found[who] = [synchronised, self.streamed(call, many), self.replayed(call, many // 4)]
        found["ratios"] = [b / a for a, b in zip(found["ours"], found["nccl"], strict=True)]
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", default=",".join(NAMES))
    options = parser.parse_args()
    results, campaign = begun(options.json), BackToBack()
    for name in options.only.split(","):
        for nbytes in SIZES:
            row = campaign.row(name, nbytes)
            results.add("row", **row)
            if campaign.rank == 0:
                times = "  ".join(
                    f"{what} {a:7.1f} NCCL {b:7.1f} x{b / a:.2f}"
                    for what, a, b in zip(
                        ("synchronised", "back to back", "graph"), row["ours"], row["nccl"], strict=True
                    )
                )
                print(f"{name:15}{format_bytes(nbytes):>5}  {times}", flush=True)
    results.end(verdict="measured")


if __name__ == "__main__":
    main()
