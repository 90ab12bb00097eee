"""`python -m mpicoll`: sub-commands, one file each in `cli`."""

from __future__ import annotations

import argparse
import sys

from mpicoll import __version__
from mpicoll.cli import compare, info, listing, plan, report, show, simulate, trace, tune, verify, warm, ways

COMMANDS = (listing, show, ways, simulate, plan, verify, info, tune, warm, report, compare, trace)


def main(arguments: list[str] | None = None) -> int:
    """Run a sub-command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mpicoll", description="See, prove and inspect collectives.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    look = argparse.RawDescriptionHelpFormatter
    for command in COMMANDS:
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
