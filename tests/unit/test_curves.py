"""Plots of time over sizes: the same curves make the same file; without matplotlib an error says what to install."""

import sys
import xml.etree.ElementTree as ElementTree

import pytest

from mpicoll.cli.curves import curves

SERIES = {"ring": [(1048576, 48e-6), (1024, 12e-6)], "one_shot": [(1024, 4e-6), (1048576, 91e-6)]}


def test_curves_are_drawn_alike_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        curves(SERIES, tmp_path / name, "allreduce", "bytes", marks={"ring wins": 65536})
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    words = ("ring", "one_shot", "ring wins", "allreduce", "1 KiB", "1 MiB", "time", "10 us")
    assert [word for word in words if f">{word}<" not in text] == []


def test_without_matplotlib_an_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r'pip install "mpicoll\[plots\]"'):
        curves(SERIES, tmp_path / "a.svg", "allreduce", "bytes")
    assert not (tmp_path / "a.svg").exists()
