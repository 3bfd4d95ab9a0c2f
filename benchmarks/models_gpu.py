"""Whole models of other libraries on one GPU, bf16 autocast: training steps as most people run them, uncaptured."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import flipout

from .gpu import timed
from .record import Row, interleaved, rows

Step = Callable[[], object]
SCHEMES = ("shared", "flipout")
DTYPE = "bfloat16 autocast"
ROWS = 16 * 1024  # tokens of the Llama's batch


def run() -> Iterator[Row]:
    warnings.simplefilter("ignore", flipout.errors.LeftPlain)  # positions and class tokens
    for case, make in {
        "ResNet-50 128 × 224²": _resnet,
        "BERT-base 64 × 128": _bert,
        "ViT-B/16 128 × 224²": _vit,
        "Llama 12 × 1024, 16 × 1024": _llama,
    }.items():
        runs = {"plain": make(None), **{scheme: make(scheme) for scheme in SCHEMES}}
        measured = interleaved({name: timed(run) for name, run in runs.items()}, seconds=4, least=10)
        yield from rows(f"{case} uncaptured", measured, dict.fromkeys(SCHEMES, "plain"), dtype=DTYPE)


def step(model: Any, loss: Callable[[Any], Tensor], inputs: tuple[Tensor, ...]) -> Step:
    parameters = list(model.parameters())

    def run() -> None:
        for parameter in parameters:
            parameter.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            value = loss(model(*inputs))
        value.backward()

    return run


def noisy(model: nn.Module, scheme: Any) -> nn.Module:
    model = model.cuda().train()
    return model if scheme is None else flipout.perturb(model, flipout.MeanField(), scheme=scheme)


def _resnet(scheme: str | None) -> Step:
    from torchvision.models import resnet50  # pyright: ignore[reportMissingImports]

    x = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    model = noisy(resnet50(), scheme).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return step(model, lambda y: y.float().logsumexp(1).mean(), (x,))


def _vit(scheme: str | None) -> Step:
    from torchvision.models import vit_b_16  # pyright: ignore[reportMissingImports]

    x = torch.randn(128, 3, 224, 224, device="cuda")
    return step(noisy(vit_b_16(), scheme), lambda y: y.float().logsumexp(1).mean(), (x,))


def _bert(scheme: str | None) -> Step:
    from transformers import BertConfig, BertForSequenceClassification

    ids = torch.randint(30522, (64, 128), device="cuda")
    model = BertForSequenceClassification(BertConfig())
    return step(noisy(model, scheme), lambda y: y.logits.float().logsumexp(1).mean(), (ids,))


def _llama(scheme: str | None) -> Step:
    return step(noisy(llama(12), scheme), next_token_loss, (tokens(),))


def llama(layers: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000,
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=layers,
            num_attention_heads=16,
            max_position_embeddings=1024,
            use_cache=False,
        )
    )


def tokens() -> Tensor:
    return torch.randint(32000, (16, 1024), device="cuda")


def next_token_loss(output: Any) -> Tensor:
    return output.logits.float().logsumexp(-1).mean()
