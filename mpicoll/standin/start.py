"""The start of stand-ins: in this process, and in those that it starts."""

from __future__ import annotations

import os
from pathlib import Path

from mpicoll.settings import TABLE, settings
from mpicoll.standin import hook

#: folder whose sitecustomize starts stand-ins in any Python
SITE = Path(__file__).parent / "site"


def start(value: str, *, native: bool = False) -> None:
    """Start stand-ins in this process, and in those that it starts.

    Args:
        value: of the setting.
        native: MPI's own collectives are used where they win.
    """
    settings.standin = value
    os.environ[TABLE["standin"].variable] = value
    if native:
        settings.native = True
        os.environ[TABLE["native"].variable] = "yes"
    before = os.environ.get("PYTHONPATH")
    if before is None or before.split(os.pathsep)[0] != str(SITE):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SITE), before)))
    hook.install()
