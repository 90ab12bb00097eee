"""The pictures of the pages: each is written by a command.

`make docs` writes them to docs/pictures, and a test compares them with what is committed.
"""

from __future__ import annotations

import io
import shlex
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from mpicoll.__main__ import main

FOLDER = Path(__file__).parent / "pictures"

#: file -> the command of `python -m mpicoll` that writes it, where FILE stands for the file
PICTURES = {
    "bcast.svg": "show bcast --ranks 4 --svg FILE",
    "bcast-linear.svg": "show bcast linear --ranks 4 --svg FILE",
    "bcast-binomial.svg": "show bcast binomial --ranks 8 --svg FILE",
    "bcast-ring-4.svg": "show bcast ring/4 --ranks 4 --svg FILE",
    "bcast-ring-8-links.svg": "show bcast ring/8 --ranks 8 --chart --svg FILE",
    "reduce.svg": "show reduce --ranks 4 --svg FILE",
    "allreduce.svg": "show allreduce --ranks 4 --svg FILE",
    "allreduce-ring.svg": "show allreduce ring --ranks 4 --svg FILE",
    "allreduce-hosts.svg": "show allreduce ring --ranks 4 --hosts 2 --svg FILE",
    "gather.svg": "show gather --ranks 4 --svg FILE",
    "scatter.svg": "show scatter --ranks 4 --svg FILE",
    "allgather.svg": "show allgather --ranks 4 --svg FILE",
    "reduce_scatter.svg": "show reduce_scatter --ranks 4 --svg FILE",
    "alltoall.svg": "show alltoall --ranks 4 --svg FILE",
    "scan.svg": "show scan --ranks 4 --svg FILE",
    "timeline.svg": "simulate bcast ring/8 --ranks 4 --bytes 16M --machine dgx_a100 --timeline FILE",
}
#: the same with matplotlib (extra `plots`), whose bytes differ by its version: not compared
PLOTS = {
    "ways.svg": "ways --ranks 4 --machine ethernet --bytes 8,256,4K,32K,256K,2M,16M,128M --svg FILE",
    "curves.svg": "simulate allreduce linear,ring,recursive_doubling --bytes 8,1K,16K,256K,4M,64M --curves FILE",
}


def picture(command: str) -> bytes:
    """Return the file that a command writes to the place of FILE; raises ValueError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "FILE"
        with redirect_stdout(io.StringIO()):
            status = main([str(file) if word == "FILE" else word for word in shlex.split(command)])
        if status or not file.exists():
            raise ValueError(f"python -m mpicoll {command}: no picture (status {status})")
        return file.read_bytes()
