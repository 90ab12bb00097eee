"""The start of stand-ins in any Python that finds this folder on PYTHONPATH, where `python -m mpicoll run` puts it.

It hides a sitecustomize that stands behind it on the path.  So it runs that one in its own place, and leaves the path
as that of a Python without it.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

HERE = Path(__file__).parent


def run_next() -> None:
    """Run the sitecustomize that would be found without this one, if there is one."""
    sys.path[:] = [entry for entry in sys.path if Path(entry) != HERE]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


runpy.run_path(str(HERE.parent / "waiting.py"))
run_next()
