"""Kernels over the eager definitions, in files of the same names. Importing this registers them."""

from triton import runtime

from .base import INTERPRETED

if not INTERPRETED:
    try:  # a driver and a C compiler are needed too
        runtime.driver.active.get_current_target()
    except Exception as error:
        raise ImportError(f"Triton cannot run here ({error})") from error

from . import factors, flips, groups, lstm, quantise, ruled, signs, streams, sums, twice

__all__ = ["factors", "flips", "groups", "lstm", "quantise", "ruled", "signs", "streams", "sums", "twice"]
