"""Models made on the meta device, and their companions."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.bayes import Normal
from tests.networks import TiedLM, convnet, encoder, mlp

PRIOR = Normal(0.5, 2.0, learn_scale=True)


LEARNED = flipout.MeanField(std=0.3, prior=PRIOR)


RELATIVE = flipout.MeanField(relative=0.5, prior=Normal(0.0, 1.5))


META = torch.device("meta")


MODELS: dict[str, tuple[Callable[[], Any], Callable[..., Tensor]]] = {
    "mlp": (mlp, lambda **k: torch.ones(3, 4, **k)),
    "convnet": (convnet, lambda **k: torch.ones(2, 2, 8, 8, **k)),
    "encoder": (encoder, lambda **k: torch.ones(2, 3, 8, **k)),
    "tied": (TiedLM, lambda **k: torch.ones(2, 3, dtype=torch.int64, **k)),
    "lstm": (lambda: nn.Sequential(nn.LSTM(3, 4)), lambda **k: torch.ones(5, 2, 3, **k)),
    "cell": (lambda: nn.Sequential(nn.GRUCell(3, 4)), lambda **k: torch.ones(2, 3, **k)),
}


def on_meta(name: str, distribution: Any = LEARNED, **options: Any) -> Any:
    with META:
        return flipout.perturb(MODELS[name][0](), distribution, where="*", **options)


def companions(model: nn.Module) -> dict[str, Tensor]:
    return {key: value for key, value in model.state_dict().items() if "_rho" in key or "_prior_" in key}


def poisoned(model: Any) -> Any:
    """Call `to_empty` and fill the memory with absurd numbers, without autograd counting these writes."""
    model.to_empty(device="cpu")
    for value in [*model.parameters(), *model.buffers()]:
        value.data.view(-1).detach().fill_(-1e13) if value.is_floating_point() else None
    for value in [*model.parameters(), *model.buffers()]:
        assert value._version == 0
    return model


def check(model: Any, distribution: Any = LEARNED, where: Any = "*") -> None:
    """Assert that the companions are what a conversion of the plain model with the same means gives."""
    expected = companions(flipout.perturb(flipout.freeze(copy.deepcopy(model)), distribution, where=where))
    assert expected.keys() == companions(model).keys()
    for key, value in companions(model).items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0, msg=key)
