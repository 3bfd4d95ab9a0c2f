"""Sums over a population, Σ_n F_n ΔW_n, a chunk of the examples at a time."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._perturbation import Perturbation
from ..draws.draw import runs
from .bases import bases_of, group_kernel


def numbers_per_chunk(tensor: Tensor) -> int:
    """Return how many numbers a sum over examples may hold at a time. On a CPU they stay near its cache."""
    return 2**22 if tensor.device.type == "cpu" else 2**26


def promoted(coefficients: Tensor, p: Perturbation) -> Tensor:
    """Return the coefficients in the dtype of the sum. Half precision would round the sum at every step."""
    return coefficients.to(p.parameter.device, torch.promote_types(p.dtype, torch.float32))


_MAX_SUM = 2.0**11  # of all |F| in half precision, so that no partial sum exceeds 2¹⁶


def outer_sum(left: Tensor, right: Tensor, coefficients: Tensor) -> Tensor:
    """Return leftᵀ diag(F) right, in the dtype of F.

    On a GPU, half-precision factors use the matrix units. F is then rounded too, relative to the sum of all |F|.
    """
    if left.dtype.itemsize > 2 or not left.is_cuda:
        dtype = coefficients.dtype
        return (left.to(dtype) * coefficients.unsqueeze(-1)).mT @ right.to(dtype)
    scale = coefficients.abs().sum().clamp_min(torch.finfo(coefficients.dtype).tiny) / _MAX_SUM
    weighted = left.half() * (coefficients / scale).half().unsqueeze(-1)
    return (weighted.mT @ right.half()).to(coefficients.dtype) * scale


def flipped_sum(
    p: Perturbation, sign_groups: int | None, coefficients: Tensor, group: int | None, reuse_signs: bool
) -> Tensor:
    """Return Σ over the bases of ΔŴ ∘ Rᵀ diag(F) S, of the Parameter's shape.

    Args:
        p: The Parameter and its examples.
        sign_groups: Groups of a convolution, 1 for a matrix, None for a vector.
        coefficients: The coefficients F, one for each example.
        group: Examples that share a ΔŴ; None for all.
        reuse_signs: Whether the signs are kept over mini-batches.
    """
    coefficients = promoted(coefficients, p)
    seed = p.seed_of_signs(reuse_signs)
    if sign_groups == 1 and p.parameter.dim() == 2:
        fused = group_kernel("weighted_noise_sum", p.parameter, p, group, None, 1)
        if fused is not None:
            kernel, arguments = fused
            dtype = torch.float16 if p.dtype.itemsize == 2 else p.dtype
            signs = p.signs.over(list(enumerate(p.parameter.shape)), seed, dtype)
            return kernel(*signs, coefficients, p.dtype, *arguments)
    total = None
    group = bases_of(p, group)[2]
    for start, count in runs(p.first, p.examples, _chunk_examples(p, sign_groups, group), group):
        chunk = p if count == p.examples else p.for_examples(start, count)
        chunk_coefficients = coefficients[start - p.first :][:count]
        first, bases, _ = bases_of(chunk, group)
        if bases > 1 and count != bases * group:  # complete the first and the last group
            missing = (start - first * group, (first + bases) * group - start - count)
            chunk_coefficients = F.pad(chunk_coefficients, missing)
            chunk = p.for_examples(first * group, bases * group)
        signs = _weighted_signs(chunk, sign_groups, chunk_coefficients, bases, seed)
        partial_sum = (p.deltas(first, bases).to(coefficients.dtype) * signs).sum(0)
        total = partial_sum if total is None else total + partial_sum
    return torch.zeros_like(p.parameter, dtype=coefficients.dtype) if total is None else total


def _chunk_examples(p: Perturbation, sign_groups: int | None, group: int) -> int:
    """Return how many examples fit into a chunk: whole groups if one fits, else a part of a group."""
    shape, size = p.parameter.shape, p.parameter.numel()
    shared, signs = group or p.examples, size
    if sign_groups is not None:
        signs = shape[0] + sign_groups * shape[1]
    limit, per_base = numbers_per_chunk(p.parameter), max(size + shared * signs, 1)
    return limit // per_base * shared if per_base <= limit else min(limit // max(signs, 1), shared)


def _weighted_signs(p: Perturbation, sign_groups: int | None, coefficients: Tensor, bases: int, seed: Tensor) -> Tensor:
    """Return Rᵀ diag(F) S for each base, or Σ_n F_n r_n for a vector. All bases have equally many examples."""
    if sign_groups is None:
        (r,) = p.signs.over([(0, p.parameter.numel())], seed, coefficients.dtype)
        sums = torch.bmm(coefficients.view(bases, 1, -1), r.unflatten(0, (bases, -1)))
        return sums.view(bases, *p.parameter.shape)
    d0, d1, *kernel = p.parameter.shape
    over0, over1 = (
        signs.view(bases, -1, sign_groups, signs.shape[1] // sign_groups).transpose(1, 2)
        for signs in p.signs.over([(0, d0), (1, sign_groups * d1)], seed, p.dtype)
    )
    return outer_sum(over0, over1, coefficients.view(bases, 1, -1)).view(bases, d0, d1, *[1] * len(kernel))
