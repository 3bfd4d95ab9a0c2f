"""A remembered call computes what the long way computes, and every unusual call takes the long way."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import flipout
from flipout.nn.remembered_call import RememberedCall
from tests.networks import gradients

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (6, 5)),
    "no bias": (lambda: nn.Linear(5, 4, bias=False), (6, 5)),
    "tokens": (lambda: nn.Linear(5, 4), (6, 3, 5)),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (6, 4, 5, 5)),
    "strided": (lambda: nn.Conv1d(3, 2, 3, stride=2), (6, 3, 9)),
}
NOISES = {
    "gaussian": flipout.Gaussian(0.3),
    "multiplicative": flipout.MultiplicativeGaussian(0.5),
    "mean field": flipout.MeanField(std=0.3),
}
SCHEMES = ["flipout", "shared", flipout.Flipout(group=8), flipout.Flipout(group=2), "independent", "local_reparam"]
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def remembered_calls(model: Any) -> list[RememberedCall | None]:
    return [layer.flipout.remembered for layer in model.modules() if isinstance(layer, flipout.nn.Perturbed)]


def forget(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, flipout.nn.Perturbed):
            layer.flipout.remembered = None


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output and all gradients of one draw."""
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    torch.manual_seed(3)
    y = model(leaf)
    y.sin().sum().backward()
    assert leaf.grad is not None
    return [y.detach(), leaf.grad, *gradients(model).values()]


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), flipout.MeanField(std=0.3))
    step(model, X)
    assert all(call is not None for call in remembered_calls(model))
    return model


def unusual(change: Callable[[Any], Any], x: Tensor = X) -> tuple[Callable[[Any], Any], Tensor]:
    return change, x


def eval_half(model: Any) -> None:
    model[2].eval()


def retie(model: Any) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def prune(model: Any) -> None:
    model[0].weight.data[0] = 0


CHANGES = {
    "another batch": unusual(lambda model: None, torch.randn(5, 4)),
    "tokens": unusual(lambda model: None, torch.randn(6, 2, 4)),
    "a new parameter": unusual(retie),
    "part of it in eval": unusual(eval_half),
    "double precision": unusual(lambda model: model.double(), X.double()),
    "pruned in place": unusual(prune),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_seen(model: nn.Sequential, name: str) -> None:
    change, x = CHANGES[name]
    change(model)
    changed = step(model, x)
    forget(model)
    torch.testing.assert_close(step(model, x), changed, rtol=0, atol=0)


@pytest.mark.parametrize("context", [flipout.hold, flipout.sampling, lambda m: flipout.using(m, scheme="shared")])
def test_contexts_take_the_long_way(model: nn.Sequential, context: Callable[[nn.Module], Any]) -> None:
    other = copy.deepcopy(model)
    forget(other)
    results = []
    for each in (model, other):
        torch.manual_seed(5)
        with context(each):
            results.append(step(each, X))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_autocast_takes_the_long_way(model: nn.Sequential) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert model(X).dtype == torch.bfloat16


def test_another_number_of_examples_is_refused_as_before(model: nn.Sequential) -> None:
    model.forward = lambda x: model[2](model[0](x)[:4])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(flipout.errors.ExampleCount, match=r"2 \(Linear\)"):
        model(X)


def test_wrong_inputs_are_refused_as_before(model: nn.Sequential) -> None:
    with pytest.raises(flipout.errors.InvalidInput, match="in_features=4"):
        model(torch.randn(6, 5))
    with pytest.raises(flipout.errors.InvalidInput, match="expected a tensor"):
        model([1.0])


def test_a_layer_called_twice_has_one_draw(model: nn.Sequential) -> None:
    model.forward = lambda x: (model[0](x), model[0](x))  # pyright: ignore[reportAttributeAccessIssue]
    first, second = model(X)
    assert torch.equal(first, second)
    assert not torch.equal(first, model(X)[0])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("checkpoint", [flipout.checkpoint, torch.utils.checkpoint.checkpoint])
def test_checkpoints_of_the_usual_call(checkpoint: Callable[..., Tensor], noise: str) -> None:
    layers = (nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    model = flipout.perturb(nn.Sequential(*layers).double(), NOISES[noise])
    x = torch.randn(6, 2, 4, 4, dtype=torch.float64)
    expected = [step(model, x) for _ in range(2)][1]
    inner = model.forward
    model.forward = lambda x: checkpoint(inner, x, use_reentrant=False)  # pyright: ignore[reportAttributeAccessIssue]
    torch.testing.assert_close(step(model, x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("change", [{"stride": (2, 2)}, {"padding_mode": "circular"}, {"padding": (0, 0)}])
def test_options_of_a_convolution_that_change_are_seen(change: dict[str, Any]) -> None:
    model: Any = flipout.perturb(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), flipout.Gaussian(0.3))
    x = torch.randn(2, 3, 9, 9)
    for _ in range(2):
        model(x)
    for option, value in change.items():
        setattr(model[0], option, value)
    changed = step(model, x)
    forget(model)
    torch.testing.assert_close(step(model, x), changed, rtol=0, atol=0)


def test_a_bias_of_another_dtype_is_cast_as_before(model: nn.Sequential) -> None:
    model[0].bias.data = model[0].bias.data.double()  # pyright: ignore
    assert torch.equal(*(step(model, X)[0] for _ in range(2)))


def test_parameters_that_exist_only_while_their_layer_runs() -> None:
    """In a sharded model, the Parameters of a layer are gathered for its call."""
    model: Any = flipout.perturb(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), flipout.Gaussian(0.3))
    for layer in (model[0], model[2]):
        full = layer.weight.data.clone()
        layer.register_forward_pre_hook(lambda module, _, full=full: setattr(module.weight, "data", full))
        layer.register_forward_hook(lambda module, *_: setattr(module.weight, "data", torch.empty(0)))
        layer.weight.data = torch.empty(0)
    with torch.no_grad():
        outputs = [model(torch.ones(2, 6)) for _ in range(3)]
    assert all(y.shape == (2, 3) for y in outputs)
    assert not torch.equal(outputs[1], outputs[2])


def test_a_part_that_is_frozen_and_perturbed_again_shares_the_draw() -> None:
    model: Any = nn.Sequential(nn.Sequential(nn.Linear(6, 5)), nn.Linear(5, 3))
    flipout.perturb(model, flipout.Gaussian(0.3))
    x = torch.randn(4, 6)
    model(x)
    flipout.freeze(model[0])
    flipout.perturb(model[0], flipout.Gaussian(0.1))
    torch.manual_seed(0)
    seed = int(torch.randint(2**63 - 1, ()))
    torch.manual_seed(0)
    drawn = model(x)
    with flipout.hold(model, seed=seed):
        assert torch.equal(model(x), drawn)


def test_remembered_draws_take_little_memory() -> None:
    """A checkpoint may ask for any of the last 1024 draws, and each could take as much memory as the model."""
    parts = [nn.Linear(64, 64) for _ in range(4)]
    model: Any = flipout.perturb(nn.Sequential(nn.Sequential(*parts), nn.Linear(64, 1)), flipout.Gaussian(0.1))
    x = torch.randn(8, 64)
    for seed in range(5):
        with flipout.hold(model[0], seed=seed):
            model[0](x)
    model(x)
    spans = model[1].flipout.roots[0][0].history.spans
    assert len(spans) >= 6
    for span in spans:
        assert not span.session.drawn
        roster = span.session.roster
        assert roster.is_lasting or not (roster.signs or "noise" in roster.__dict__)


class Folding(nn.Module):
    """Folds positions into the rows of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(-1, 4)).view(x.shape)


def test_folded_rows_are_not_remembered_as_examples() -> None:
    """Six examples of one position, then three of two: the layer sees six rows both times."""
    model = flipout.perturb(Folding(), flipout.Gaussian(0.5), example_inputs=torch.randn(2, 3, 4))
    model(X.view(6, 1, 4))
    y = model(X[:3].unsqueeze(1).expand(3, 2, 4).contiguous())
    torch.testing.assert_close(y[:, 0], y[:, 1])  # the positions of an example are equal, and share its weight


def test_a_fold_is_refused_after_a_remembered_call() -> None:
    model = flipout.perturb(Folding(), flipout.Gaussian(0.5))
    model(X)
    assert remembered_calls(model) != [None]
    with pytest.raises(flipout.errors.ExampleCount, match="6 rows"):
        model(X.view(3, 2, 4))
