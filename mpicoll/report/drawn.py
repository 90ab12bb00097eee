"""Figures as SVG by matplotlib, which print sharply and need no script in the page.

An interactive library would put 4.8 MB of its own into each page.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drawn(width: float, height: float, draw: Callable[[Figure], None]) -> str:
    """Return a figure as an element of a page; equal figures are equal texts.

    Args:
        width: in inches.
        height: in inches.
        draw: draws into the empty figure.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError('a report needs matplotlib: pip install "mpicoll[plots]"') from None
    out = io.StringIO()
    with matplotlib.rc_context(
        {"svg.hashsalt": "mpicoll", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    ):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]  # without what stands before it in a file
