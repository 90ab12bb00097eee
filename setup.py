"""The build of `mpicoll.pth` beside the package, so that the variable MPICOLL_STANDIN is enough: setup.cfg cannot."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "mpicoll.pth"


class BuildPy(build_py):
    """The build of the package, with a file beside it that Python reads when it starts."""

    def run(self) -> None:
        """Build; an editable install has the package elsewhere, where the file would find nothing."""
        super().run()
        if not self.editable_mode:
            self.copy_file(str(Path("mpicoll", "standin", NAME)), self.build_lib)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files that are written."""
        own = [] if self.editable_mode else [str(Path(self.build_lib, NAME))]
        return [*super().get_outputs(include_bytecode), *own]


setup(cmdclass={"build_py": BuildPy})
