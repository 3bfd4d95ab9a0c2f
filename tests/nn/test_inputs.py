"""Rows that cannot be the examples are refused."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.nn.folded import Followed


def test_a_folded_layer_called_alone_is_refused() -> None:
    model: Any = flipout.perturb(Followed(), flipout.Gaussian(0.3), example_inputs=torch.randn(3, 6, 4))
    with pytest.raises(errors.ExampleCount, match="only inside a call of the whole model"):
        model.flat(torch.randn(18, 4))


TIME_MAJOR: dict[str, tuple[nn.Module, Tensor]] = {
    "linear": (nn.Linear(4, 5), torch.randn(6, 3, 4)),
    "embedding": (nn.Embedding(9, 4), torch.randint(9, (6, 3))),
    "norm": (nn.LayerNorm(4), torch.randn(6, 3, 4)),
    "lstm": (nn.LSTM(4, 5), torch.randn(6, 3, 4)),
    "attention": (nn.MultiheadAttention(4, 2), torch.randn(6, 3, 4)),
}


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
@pytest.mark.parametrize("name", TIME_MAJOR)
def test_a_time_major_output_is_contiguous(name: str, scheme: Any) -> None:
    """Models flatten it with `.view`, as the output of the plain layer."""
    layer, x = copy.deepcopy(TIME_MAJOR[name][0]), TIME_MAJOR[name][1]
    inputs = (x, x, x) if name == "attention" else (x,)
    dims = {"": 1} if name in ("linear", "embedding", "norm") else None
    layer = flipout.perturb(
        layer,
        flipout.Gaussian(0.3),
        where="*",
        scheme=scheme,
        batch_dim=dims,
    )
    for _ in range(2):
        y = layer(*inputs)
        y = y[0] if isinstance(y, tuple) else y
        assert y.view(18, -1).shape[0] == 18


class FeedForward(nn.Module):
    """Only the flattened part is perturbed, as in OPT with its feed-forward layers chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(0, 1)).view(x.shape)


def test_rows_that_no_input_has_are_refused() -> None:
    model, x = flipout.perturb(FeedForward(), flipout.Gaussian(0.3)), torch.randn(4, 9, 4)
    with pytest.raises(
        errors.ExampleCount, match=r"36 rows, .* called with 4 .*example_inputs=batch.*batch_dim=\{'fc': 0\}"
    ):
        model(x)
    assert flipout.perturb(FeedForward(), flipout.Gaussian(0.3), batch_dim={"fc": 0})(x).shape == x.shape
    followed: Any = flipout.perturb(FeedForward(), flipout.Gaussian(0.3), example_inputs=x)
    with flipout.hold(followed):
        followed(x)
        assert len(flipout.example_weights(followed.fc)["weight"]) == 4
