"""Colours of blocks and ranks, far enough apart to be told from each other on white."""

from __future__ import annotations

import colorsys

FIRST = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
DARK, LIGHT = "#1a1a1a", "#ffffff"
#: what carries more than a few colours
MIXED = "#555555"
#: weights of red, green and blue in a colour's brightness
WEIGHTS = (0.299, 0.587, 0.114)


def palette(count: int) -> list[str]:
    """Return so many colours; neighbours differ in hue, and from 9 on in lightness too."""
    if count <= len(FIRST):
        return list(FIRST[:count])
    return [_hex(colorsys.hls_to_rgb(k / count, (0.42, 0.62)[k % 2], 0.55)) for k in range(count)]


def ink(colour: str) -> str:
    """Return the colour of text on a colour."""
    brightness = sum(weight * part for weight, part in zip(WEIGHTS, _parts(colour), strict=True))
    return DARK if brightness > 0.52 else LIGHT


def tint(colour: str, share: float = 0.14) -> str:
    """Return a colour mixed with white; `share` is the colour's."""
    red, green, blue = (share * part + 1 - share for part in _parts(colour))
    return _hex((red, green, blue))


def _parts(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def _hex(parts: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
