"""`python -m mpicoll`, or `mpicoll` alone: sub-commands, one file each in `cli`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mpicoll import __version__

#: files in `cli`, in the order of the help
COMMANDS = "listing show ways simulate plan verify info run tune warm report compare trace"


def commands_for(words: list[str]) -> list[Any]:
    """Return the modules of the sub-commands that a command line may have; `run` alone imports no others."""
    names = ["run"] if words[:1] == ["run"] else COMMANDS.split()
    return [import_module(f"mpicoll.cli.{name}") for name in names]


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["bench"]:  # whose parser is heard on one rank only
        from mpicoll.bench.__main__ import main as bench

        bench(arguments[1:])
    chosen = _parser(commands_for(arguments)).parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except (ValueError, NotImplementedError, OSError) as error:
        print(f"mpicoll: {error}", file=sys.stderr)
        return 2


def _parser(modules: list[Any]) -> argparse.ArgumentParser:
    """Return the parser of these modules' sub-commands; that of `bench` is only named."""
    name = "mpicoll" if Path(sys.argv[0]).name == "mpicoll" else "python -m mpicoll"
    parser = argparse.ArgumentParser(prog=name, description="See, prove and inspect collectives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    look = argparse.RawDescriptionHelpFormatter
    for command in modules:
        one = commands.add_parser(command.NAME, help=command.HELP, description=command.__doc__, formatter_class=look)
        command.add(one)
        one.set_defaults(run=command.run)
    commands.add_parser("bench", help="measure and validate every collective, as python -m mpicoll.bench")
    return parser


if __name__ == "__main__":
    sys.exit(main())
