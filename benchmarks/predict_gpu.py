"""`predict` of ResNet-50 with 32 samples on one GPU, bf16 autocast, against as many plain inferences of the batch."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes

from .gpu import timed
from .record import Row, interleaved, rows

BATCHES = (64, 128)
SAMPLES = 32
NOISE = flipout.MeanField(relative=0.1)


def run() -> Iterator[Row]:
    from torchvision.models import resnet50  # pyright: ignore[reportMissingImports]

    model: nn.Module = resnet50().cuda().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    plain, noisy = networks(model)
    for batch in BATCHES:
        x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        variants = {name: timed(variant) for name, variant in predictions(plain, noisy, x, SAMPLES).items()}
        measured = interleaved(variants, seconds=10, least=5)
        against = dict.fromkeys(list(variants)[1:], "plain")
        yield from rows(f"ResNet-50 predict, {SAMPLES} × {batch} × 224²", measured, against, dtype="bfloat16 autocast")


def networks(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return a plain network in eval mode, and the same one with a posterior."""
    plain = copy.deepcopy(model).eval()
    return plain, flipout.perturb(model, NOISE)


def predictions(plain: nn.Module, noisy: nn.Module, x: Tensor, samples: int) -> dict[str, Callable[[], Tensor]]:
    """Return runs that end in probabilities: plain inferences, one network for each sample, own weights per input."""

    def in_bf16() -> torch.autocast:
        return torch.autocast(x.device.type, torch.bfloat16)

    def infer() -> Tensor:
        with torch.no_grad(), in_bf16():
            return torch.stack([plain(x) for _ in range(samples)]).float().softmax(-1).mean(0)

    def predict(joint: bool) -> Tensor:
        with in_bf16():
            return bayes.predict(noisy, x, samples, likelihood="categorical", joint=joint).mean

    return {"plain": infer, "joint": lambda: predict(True), "own weights": lambda: predict(False)}
