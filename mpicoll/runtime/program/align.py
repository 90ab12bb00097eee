"""Rounding of sizes, so that what shares a piece of memory is aligned."""

#: bytes at whose multiples what shares a piece of memory starts
ALIGNMENT = 256


def aligned(nbytes: int) -> int:
    """Return nbytes rounded up to a multiple of ALIGNMENT, such as 512 for 257."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
