"""The mutual information of the next token and the weights: by explicit samples, per sequence, and per token."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

import flipout

from ..running.progress import RunProgress
from .per_token import posterior_layers, signs_per_token

_BLOCKS = 20


@torch.no_grad()
def measured_information(
    model: Any, prompt: Tensor, samples: int, chunk: int, seed: int, progress: RunProgress | None = None
) -> dict[str, list[float]]:
    """Return the mutual information for one prompt, in nats, and its standard error, for each way to draw weights.

    Args:
        model: A model with a posterior, in eval mode.
        prompt: Token ids, (1, T).
        samples: The number of samples.
        chunk: The largest number of rows of a pass.
        seed: The seed of the library's draws. The other ways read torch's generator.
        progress: Shows how far this is.
    """
    samples -= samples % _BLOCKS

    def collect(way: str, run_rows: Callable[[int, int], Tensor]) -> list[float]:
        starts = range(0, samples, chunk)
        shown = starts if progress is None else progress.track(starts, way)
        return list(_estimate(torch.cat([run_rows(start, min(chunk, samples - start)) for start in shown])))

    def answers(rows: int) -> Tensor:
        return model(input_ids=prompt.expand(rows, -1), logits_to_keep=1).logits[:, -1].float().softmax(-1)

    def per_sequence(first: int, rows: int) -> Tensor:
        with flipout.hold(model, seed=seed, first=first, group=1):
            return answers(rows)

    def per_token(_: int, rows: int) -> Tensor:
        with signs_per_token(model, base_per_row=True):
            return answers(rows)

    def explicit(_: int, rows: int) -> Tensor:
        hooks = []
        for layer in posterior_layers(model):
            mean, rho = layer.get_parameter("weight"), layer.get_parameter("weight_rho")
            weights = mean + softplus(rho) * torch.randn(rows, *mean.shape, dtype=mean.dtype, device=mean.device)
            hooks.append(layer.register_forward_hook(lambda _, args, __, w=weights: args[0] @ w.mT))
        try:
            return answers(rows)
        finally:
            for hook in hooks:
                hook.remove()

    ways = {"explicit": explicit, "per sequence": per_sequence, "per token": per_token}
    return {way: collect(way, run_rows) for way, run_rows in ways.items()}


def _estimate(probabilities: Tensor) -> tuple[float, float]:
    """Return the mutual information, and its standard error by the jackknife over blocks of samples."""
    blocks = probabilities.double().unflatten(0, (_BLOCKS, -1))
    without = [_information(torch.cat((blocks[:b], blocks[b + 1 :])).flatten(0, 1)) for b in range(_BLOCKS)]
    error = torch.tensor(without).std(correction=0) * math.sqrt(_BLOCKS - 1)
    return _information(probabilities.double()), float(error)


def _information(probabilities: Tensor) -> float:
    return float(torch.special.entr(probabilities.mean(0)).sum() - torch.special.entr(probabilities).sum(-1).mean())
