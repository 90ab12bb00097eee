"""`python -m mpicoll`: sub-commands, one file each in `cli`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
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
    parser = argparse.ArgumentParser(prog="python -m mpicoll", description="See, prove and inspect collectives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    look = argparse.RawDescriptionHelpFormatter
    for command in commands_for(sys.argv[1:] if arguments is None else arguments):
        one = commands.add_parser(command.NAME, help=command.HELP, description=command.__doc__, formatter_class=look)
        command.add(one)
        one.set_defaults(run=command.run)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen) or 0)
    except (ValueError, NotImplementedError, OSError) as error:
        print(f"mpicoll: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
