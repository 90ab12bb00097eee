"""What a call raises, and when."""

import time

import numpy as np


def raised(call):
    """Return what a call raises, None if nothing, and how long it took."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return error, time.monotonic() - begin
    return None, time.monotonic() - begin


def zeros(count=4, dtype="f8"):
    return np.zeros(count, dtype)
