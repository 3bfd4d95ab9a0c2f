"""Models and optimisers that do not fit are refused, and the model stays unchanged."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import flipout
from flipout import errors
from tests.es.toys import network, regression, strategy
from tests.networks import same_state, state

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an optimiser": (
        {"optimizer": torch.optim.SGD(network().parameters())},
        errors.InvalidArgument,
        "of type SGD given; expected a function from",
    ),
    "no optimiser": ({"optimizer": lambda p: None}, errors.InvalidArgument, "a function from"),
    "half of it": (
        {"optimizer": lambda p: torch.optim.SGD(p[:2])},
        errors.InvalidArgument,
        "it has 2 Parameters, but 4",
    ),
    "the wrong way": (
        {"optimizer": lambda p: torch.optim.SGD(p, maximize=True)},
        errors.InvalidArgument,
        "maximize=True would minimise",
    ),
    "a schedule by loss": (
        {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau},
        errors.InvalidArgument,
        "steps by a loss",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_optimisers(name: str) -> None:
    how, kind, said = WRONG[name]
    model = network()
    before = state(model)
    with pytest.raises(kind, match=said):
        strategy(model=model, **how)
    assert same_state(before, state(model))


def test_the_first_use_needs_no_optimiser() -> None:
    told = strategy(optimizer=lambda parameters: torch.optim.Adam(parameters, 1e-2))
    default = flipout.es.EvolutionStrategy(network(), regression, population=24, group=4, std=0.1)
    told.run(3)
    default.replica().run(3)
    default.run(3)
    for expected, parameter in zip(told.model.parameters(), default.model.parameters(), strict=True):
        assert torch.equal(parameter, expected)


class Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * x


def test_a_parameter_that_no_layer_perturbs() -> None:
    lstm = flipout.regularizers.ZarembaLSTM(4, 4, dropout=0.5).double()
    message = r"1\.bias_hh_l0 of a ZarembaLSTM.*flipout.register.*requires_grad_\(False\)"
    with pytest.raises(errors.UnknownParameter, match=message):
        strategy(model=nn.Sequential(network(), lstm))


def test_a_parameter_of_a_module_that_nobody_knows() -> None:
    model = nn.Sequential(Gain(), network())
    gain = model.get_parameter("0.gain").requires_grad_(False)
    strategy(model=model).step()
    assert gain.tolist() == [1.0] * 4
    model = nn.Sequential(Gain(), network())
    strategy(model=model).step()
    assert 1.0 not in model.get_parameter("0.gain").tolist()


def test_nothing_to_train() -> None:
    with pytest.raises(errors.InvalidArgument, match="nothing to train"):
        strategy(model=network().requires_grad_(False))


def test_a_model_with_noise() -> None:
    model = flipout.perturb(network(), flipout.Gaussian(0.1))
    with pytest.raises(errors.AlreadyPerturbed, match=r"flipout.freeze\(model\)"):
        strategy(model=model)


def test_sharded_models_are_refused_by_name() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(errors.Unsupported, match=r"EvolutionStrategy: .* is sharded over ranks.*the whole model"):
            strategy(model=fully_shard(network()))
        evolution = strategy()
        fully_shard(evolution.model)
        with pytest.raises((errors.RunError, errors.Unsupported), match=r"fully_shard"):
            evolution.tell(torch.arange(24.0))
    finally:
        torch.distributed.destroy_process_group()
