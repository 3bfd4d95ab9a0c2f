"""Being shown a batch leaves nothing behind."""

from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.nn.restored import restored_afterwards


class Caching(nn.Module):
    """Keeps what it computes of a Parameter, as LeViT does in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.bias = nn.Linear(4, 4), nn.Parameter(torch.randn(2, 4))
        self.tables: dict[str, Tensor] = {}
        self.list, self.set, self.last, self.calls = [1], {1}, None, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training or not self.tables:
            self.tables = {} if self.training else self.tables
            self.tables["bias"] = self.bias[torch.tensor([0])]
        self.calls += 1
        self.list.append(2)
        self.set.add(2)
        self.last = self.found = x
        return self.fc(x) + self.tables["bias"]


def test_all_attributes_are_put_back() -> None:
    model = Caching().eval()
    tables = model.tables
    with restored_afterwards(model):
        model.train()(torch.randn(3, 4))
        model.eval()(torch.randn(3, 4))
    assert model.tables is tables
    assert (model.tables, model.list, model.set, model.last, model.calls) == ({}, [1], {1}, None, 0)
    assert not hasattr(model, "found")
    assert not model.training


def test_a_table_that_was_computed_for_the_batch_hides_no_noise() -> None:
    x = torch.randn(3, 4)
    model: Any = flipout.perturb(Caching(), flipout.Gaussian(0.3), where="bias", example_inputs=x)
    assert not model.tables
    with flipout.hold(model.eval(), seed=1):
        assert not torch.equal(model(x), model.fc(x) + model.bias[:1])


def test_a_model_that_has_changed_its_weights_keeps_saying_so() -> None:
    """RWKV divides its weights once when it is run in eval mode."""

    class Rescaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.is_rescaled = nn.Linear(4, 4), False

        def forward(self, x: Tensor) -> Tensor:
            if not (self.training or self.is_rescaled):
                with torch.no_grad():
                    self.fc.weight.div_(2)
                self.is_rescaled = True
            return self.fc(x)

    model, x = Rescaled(), torch.randn(3, 4)
    flipout.perturb(model, flipout.Gaussian(0.3), example_inputs=x)
    assert model.is_rescaled


def test_a_lazy_module_keeps_its_sizes() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with restored_afterwards(model):
        model(torch.randn(2, 5))
    assert model[0].in_features == 5


def test_hooks_that_a_first_call_installs_are_not_installed_twice() -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.has_hooks = nn.Linear(4, 4), False

        def forward(self, x: Tensor) -> Tensor:
            if not self.has_hooks:
                self.fc.register_forward_hook(lambda *_: None)
                self.has_hooks = True
            return self.fc(x)

    model = Hooked()
    for _ in range(2):
        with restored_afterwards(model):
            model(torch.randn(2, 4))
    assert len(model.fc._forward_hooks) == 1
