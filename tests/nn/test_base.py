"""The mixin adds one public attribute to a torch layer, and leaves all other names to the layer."""

import pytest
import torch
from torch import nn

import flipout
from flipout.errors import Unsupported
from flipout.nn import LAYERS


@pytest.mark.parametrize("layer_type", LAYERS)
def test_one_public_attribute(layer_type: type[flipout.nn.Perturbed]) -> None:
    added = {name for name in dir(layer_type) if not name.startswith("_")} - set(dir(layer_type._plain_type))
    assert added <= {"reset_parameters"}  # torch's MultiheadAttention calls its own `_reset_parameters`
    assert "flipout" in flipout.nn.Perturbed.__annotations__


def test_names_of_a_users_layer_stay_its_own() -> None:
    """For example, layers of bitsandbytes have a `compute_dtype`, which PEFT reads."""
    names = ("label", "free", "noisy", "plan", "compute_dtype", "default", "learn", "vectors", "perturbations")

    class Users(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            for name in names:
                setattr(self, name, name.upper())

    class Perturbed(flipout.nn.Linear, Users):
        pass

    flipout.register(Users, Perturbed)
    layer = flipout.perturb(Users(), flipout.Gaussian(0.1))
    layer(torch.randn(5, 4))
    assert all(getattr(layer, name) == name.upper() for name in names)
    assert flipout.freeze(layer)(torch.randn(5, 4)).shape == (5, 3)


def test_a_layer_inherits_declarations() -> None:
    class Narrow(flipout.nn.Linear, optional=()):
        pass

    assert Narrow._declared.default == flipout.nn.Linear._declared.default
    assert Narrow._declared.optional == ()
    assert Narrow._plain_type is nn.Linear


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torch_script_is_refused_and_serves_the_plain_model() -> None:
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), flipout.MeanField())
    with pytest.raises(
        Unsupported, match=r"0 \(Linear\): torch\.jit\.script cannot .*torch\.jit\.script\(flipout\.freeze"
    ):
        torch.jit.script(model)
    assert type(model[0]) is flipout.nn.Linear
    x = torch.randn(5, 4)
    plain = flipout.freeze(model)
    assert torch.equal(torch.jit.script(plain)(x), plain(x))
