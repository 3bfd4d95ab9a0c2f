"""Models that other libraries have changed are refused before anything is converted. See zoo/test_life.py too."""

import pytest
import torch
from torch import nn

import flipout
from flipout import errors


class Tied(nn.Module):
    """Says, as transformers does, which weights it will tie once it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.all_tied_weights_keys = {"head.weight": "embed.weight"}


def test_ties_that_come_later_are_refused() -> None:
    with torch.device("meta"):
        model = Tied()
    with pytest.raises(errors.Unsupported, match=r"head\.weight will be tied to embed\.weight by from_pretrained"):
        flipout.perturb(model, flipout.Gaussian(0.1))
    assert type(model.head) is nn.Linear
    flipout.perturb(Tied(), flipout.Gaussian(0.1))  # real weights that are not tied stay so
    model.head.weight = model.embed.weight
    flipout.perturb(model, flipout.Gaussian(0.1))


def test_offloaded_weights_have_no_learned_spread() -> None:
    model = nn.Sequential(nn.Linear(4, 4, device="meta"))
    model[0]._hf_hook = object()  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.Unsupported, match="0: its weights are offloaded by accelerate, and what MeanField"):
        flipout.perturb(model, flipout.MeanField())
    flipout.perturb(model, flipout.Gaussian(0.1))


def test_a_wrapped_model_gets_no_new_parameters() -> None:
    wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.module = nn.Linear(4, 4)
    with pytest.raises(errors.Unsupported, match="Perturb first, then wrap"):
        flipout.perturb(wrapped, flipout.MeanField())
