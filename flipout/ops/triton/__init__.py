"""Kernels that replace eager definitions. Importing this package registers them.

Raises ImportError if Triton cannot run here; `flipout.backend` then uses the definitions and keeps the reason.
"""

from .internals import INTERPRETED, require_driver

if not INTERPRETED:
    require_driver()

from . import (
    example_noise,
    flips,
    fp8,
    fused_linear,
    grouped_noise,
    lstm,
    masked_lstm,
    noise_starts,
    paired_noise,
    rank_one_flips,
    row_sums,
    scaled_streams,
    sign_noise,
    signs,
)

__all__ = [
    "example_noise",
    "flips",
    "fp8",
    "fused_linear",
    "grouped_noise",
    "lstm",
    "masked_lstm",
    "noise_starts",
    "paired_noise",
    "rank_one_flips",
    "row_sums",
    "scaled_streams",
    "sign_noise",
    "signs",
]
