"""Two hosts on one machine: network namespaces with names of their own, joined by a pair of virtual devices."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.runner import is_mpich

#: the device of each host, and the part of its address before its number
WIRE, NET = "wire", "10.91.7."
#: where `ip netns exec` finds a host's own files of /etc
ETC = Path("/etc/netns")
#: what an MPI needs to use the wire only
ENVIRONMENT = {
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": WIRE,
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": WIRE,
    "PRTE_MCA_prte_if_include": WIRE,
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
}
#: stands for ssh: runs a command on a host
LAUNCHER = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
host, *command = words
enter = ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c"]
os.execvp("ip", [*enter, f"hostname {{host}}; " + " ".join(command)])
"""


def do(command: str) -> str:
    """Run a command that must succeed; return what it printed."""
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


@dataclass
class Hosts:
    """Two hosts.

    Attributes:
        names: of the hosts.
        launcher: file that stands for ssh.
    """

    names: tuple[str, str]
    launcher: Path

    def options(self, ranks: tuple[int, int], *, outlive: bool = False) -> list[str]:
        """Return mpirun's options for so many ranks on each host.

        Args:
            ranks: of each host.
            outlive: ranks live on when another one dies.
        """
        places = ",".join(f"{name}:{count}" for name, count in zip(self.names, ranks, strict=True))
        if is_mpich():
            start = ["-launcher", "ssh", "-launcher-exec", str(self.launcher), "-iface", WIRE, "-hosts", places]
            return ["-disable-auto-cleanup", *start] if outlive else start
        start = ["--prtemca", "plm_ssh_agent", str(self.launcher), "--bind-to", "none", "--host", places]
        return ["--continuous", *start] if outlive else start

    def on_first(self, command: list[str]) -> list[str]:
        """Return a command that runs another one on the first host."""
        return [str(self.launcher), self.names[0], *command]

    def cut(self, host: int) -> None:
        """Take the link of a host down."""
        do(f"ip -n {self.names[host]} link set {WIRE} down")

    def join(self, host: int) -> None:
        """Put the link of a host up again."""
        do(f"ip -n {self.names[host]} link set {WIRE} up")

    def kill(self, host: int) -> None:
        """Kill all processes of a host."""
        _kill_all(self.names[host])

    def slow(self, rate: str) -> str:
        """Let so much through the wire; returns why that cannot be had, "" if it can."""
        try:
            for name in self.names:
                do(f"ip netns exec {name} tc qdisc add dev {WIRE} root tbf rate {rate} burst 16kb latency 400ms")
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            return f"no link can be slowed here: {error}"
        return ""


@functools.cache
def unavailable() -> str:
    """Return why there can be no hosts here, "" if there can."""
    if os.geteuid():
        return "hosts need root"
    missing = [name for name in ("ip", "unshare") if shutil.which(name) is None]
    if missing:
        return f"hosts need {' and '.join(missing)} (Debian: iproute2, util-linux)"
    name = f"mpicoll-{os.getpid()}-0"
    try:
        do(f"ip netns add {name}")
        do(f"ip -n {name} link add {WIRE} type veth peer name other")
        do(f"ip netns exec {name} unshare --uts true")
    except subprocess.CalledProcessError as error:
        return f"no hosts can be made here: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return ""


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Make two hosts, and remove them in the end with all that runs there; the test is skipped where that fails."""
    trouble = unavailable()
    if trouble:
        pytest.skip(trouble)
    _remove_leftovers()
    names = (f"mpicoll-{os.getpid()}-1", f"mpicoll-{os.getpid()}-2")
    launcher = folder / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    try:
        for number, name in enumerate(names, 1):
            _add(name, number, names)
        yield Hosts(names, launcher)
    finally:
        for name in names:
            _remove(name)


def _add(name: str, number: int, names: tuple[str, str]) -> None:
    """Add a host; the wire comes with the second one."""
    do(f"ip netns add {name}")
    etc = ETC / name
    etc.mkdir(parents=True)
    lines = ["127.0.0.1 localhost", *(f"{NET}{k} {other}" for k, other in enumerate(names, 1))]
    (etc / "hosts").write_text("\n".join(lines) + "\n")
    if number == 2:
        do(f"ip -n {names[0]} link add {WIRE} type veth peer name {WIRE} netns {names[1]}")
        for k, each in enumerate(names, 1):
            do(f"ip -n {each} address add {NET}{k}/24 dev {WIRE}")
            do(f"ip -n {each} link set {WIRE} up")
            do(f"ip -n {each} link set lo up")
        for each in names:
            _wait_for_link(each)


def _wait_for_link(name: str) -> None:
    """Wait until the wire carries: MPI would not find it before."""
    end = time.monotonic() + 10
    while "state UP" not in do(f"ip -n {name} -o link show {WIRE}"):
        assert time.monotonic() < end, f"the link of {name} does not come up"
        time.sleep(0.02)


def _kill_all(name: str) -> None:
    """Kill all processes of a host, if it is there."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for process in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)


def _remove_leftovers() -> None:
    """Remove the hosts of processes that were killed."""
    for etc in ETC.glob("mpicoll-*-[12]"):
        if not Path("/proc", etc.name.split("-")[1]).exists():
            _remove(etc.name)


def _remove(name: str) -> None:
    _kill_all(name)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    shutil.rmtree(ETC / name, ignore_errors=True)
    with suppress(OSError):  # others' are there
        ETC.rmdir()
