"""A converted language model passes every check of `flipout.testing`."""

import torch
from torch import Tensor, nn

import flipout

from .models import bayesian


class Logits(nn.Module):
    """A Llama from embeddings (N, T, F) to logits (N, T, words)."""

    def __init__(self) -> None:
        super().__init__()
        self.model = bayesian().float()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(inputs_embeds=x).logits


def test_a_bayesian_llama_conforms() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, 16)
    report = flipout.testing.assert_conforms(Logits(), x, positions=(1,), draws=200, only=flipout.testing.CHECKS)
    assert len(report) == len(flipout.testing.CHECKS)
