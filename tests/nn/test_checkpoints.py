"""A recomputation sees the draw of its forward pass, with torch's checkpoints and ours, whenever backward runs."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.nn import history
from flipout.schemes import SchemeName
from tests.networks import Blocks, gradients

# torch's reentrant checkpoint gives this warning for every checkpoint inside another.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
DISTRIBUTION = flipout.MeanField(std=0.3)
X = torch.linspace(-1, 1, 12).view(3, 4)


def plain(function: Callable, x: Tensor) -> Tensor:
    return function(x)


def reentrant(function: Callable, x: Tensor) -> Tensor:
    return torch.utils.checkpoint.checkpoint(function, x, use_reentrant=True)


def modern(function: Callable, x: Tensor) -> Tensor:
    return torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)


def ours(function: Callable, x: Tensor) -> Tensor:
    return flipout.checkpoint(function, x)


def ours_reentrant(function: Callable, x: Tensor) -> Tensor:
    return flipout.checkpoint(function, x, use_reentrant=True)


TORCHS = [reentrant, modern]
CHECKPOINTS = [*TORCHS, ours, ours_reentrant]


def build(wrap: Callable, scheme: SchemeName = "flipout") -> Any:
    torch.manual_seed(1)
    return flipout.perturb(Blocks(wrap), DISTRIBUTION, scheme=scheme, where="*")


@pytest.fixture(
    autouse=True,
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
        ),
    ],
)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a GPU, backward runs in another thread than forward."""
    with torch.device(request.param):
        yield


def inputs() -> Tensor:
    return X.to(torch.get_default_device()).requires_grad_()


def compare(run: Callable[[Any, Callable], Tensor | None], wrap: Callable, **options) -> None:
    """Compare gradients and generator with those of a run without checkpoints.

    `run(model, around)` returns a loss, or calls backward itself.
    """
    results = []
    for inside, around in ((plain, plain), (wrap, plain), (plain, wrap), (wrap, wrap)):
        model = build(inside, **options)
        torch.manual_seed(2)
        loss = run(model, around)
        if loss is not None:
            loss.backward()
        results.append((gradients(model), torch.get_rng_state()))
    for got, state in results[1:]:
        torch.testing.assert_close(got, results[0][0])
        assert torch.equal(state, results[0][1])


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_inside_and_around_the_root(wrap, scheme):
    compare(lambda model, around: around(model, inputs()).square().sum(), wrap, scheme=scheme)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_backward_after_hold_has_ended(wrap, mode, seed):
    def run(model, around):
        getattr(model, mode)()
        with flipout.hold(model, seed):
            return around(model, inputs()).square().sum()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_backward_after_sampling_has_ended(wrap):
    def run(model, around):
        model.eval()
        with flipout.sampling(model):
            return around(model, inputs()).square().sum()

    compare(run, wrap)


@pytest.mark.parametrize("context", [lambda m: flipout.hold(m, seed=3), flipout.sampling])
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_backward_inside_another_context(wrap, mode, context):
    def run(model, around):
        getattr(model, mode)()
        loss = around(model, inputs()).square().sum()
        with context(model):
            loss.backward()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_backward_under_the_outer_of_two_holds(wrap):
    def run(model, around):
        with flipout.hold(model, seed=1):
            outer = around(model, inputs())
            with flipout.hold(model, seed=2), flipout.hold(model.first, seed=3):
                inner = around(model, inputs())
            (inner * outer).sum().backward()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_a_hold_on_a_part_of_the_model(wrap):
    def run(model, around):
        with flipout.hold(model.blocks[0]):
            return around(model, inputs()).square().sum()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_contexts_inside_a_checkpoint(wrap):
    def product(model: nn.Module, x: Tensor) -> Tensor:
        with flipout.hold(model):
            y = model(x)
        with flipout.hold(model):
            return y * model(x)

    compare(lambda model, around: around(lambda x: product(model, x), inputs()).sum(), wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_two_forward_passes_before_one_backward(wrap):
    def run(model, around):
        return (around(model, inputs()) * around(model, inputs() + 1)).sum()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_backward_passes_in_another_order(wrap):
    def run(model, around):
        losses = [around(model, inputs() + i).square().sum() for i in range(3)]
        for loss in (losses[1], losses[2], losses[0]):
            loss.backward()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_layers_called_inside_and_outside_their_root(wrap):
    def run(model, around):
        y = around(model.first, inputs()) + around(model, inputs())
        return (y * around(model.first, inputs())).sum()

    compare(run, wrap)


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_part_of_the_model_in_training_mode(wrap):
    def run(model, around):
        model.eval()
        model.blocks[1].train()
        return around(model, inputs()).square().sum()

    compare(run, wrap)


@pytest.mark.parametrize("inner", CHECKPOINTS)
@pytest.mark.parametrize("outer", CHECKPOINTS)
def test_checkpoints_inside_checkpoints(outer, inner):
    def run(model, around):
        def halves(x: Tensor) -> Tensor:
            return model.wrap(model.blocks[1], model.wrap(model.blocks[0], x))

        model.forward = lambda x: outer(halves, model.first(x)) if model.wrap is not plain else halves(model.first(x))
        return (model(inputs()) * model(inputs())).sum()

    results = []
    for wrap in (plain, inner):
        model = build(wrap)
        torch.manual_seed(2)
        run(model, plain).backward()
        results.append(gradients(model))
    torch.testing.assert_close(results[0], results[1])


@dataclass
class Output:
    logits: Tensor


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_outputs_of_any_kind_and_losses_stored_elsewhere(wrap):
    results = []
    for inside in (plain, wrap):
        model = build(inside)
        inner, aside = model.forward, []
        model.forward = lambda x, inner=inner, aside=aside: aside.append(y := inner(x)) or Output(y)  # pyright: ignore
        torch.manual_seed(2)
        for _ in range(2):
            model(inputs())
        (aside[0] * aside[1]).sum().backward()
        results.append(gradients(model))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("wrap", CHECKPOINTS)
def test_layers_made_by_hand(wrap):
    results = []
    for inside in (plain, wrap):
        torch.manual_seed(1)
        layers = [flipout.nn.Linear(4, 4, distribution=DISTRIBUTION) for _ in range(2)]
        model = nn.Sequential(*layers, nn.Dropout(0.4))
        for context in (nullcontext(), flipout.hold(model)):
            with context:
                loss = inside(model, inputs()).sum() * inside(layers[0], inputs()).sum()
            loss.backward()
        results.append(gradients(model))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("wrap", TORCHS)
def test_a_draw_that_was_forgotten_is_refused(wrap, monkeypatch):
    monkeypatch.setattr(history, "_CAPACITY", 2)
    model = build(wrap)
    losses = [model(inputs()).sum() for _ in range(3)]
    losses[2].backward()
    with pytest.raises(errors.AmbiguousReplay, match=r"more than 2 forward passes.*flipout\.checkpoint"):
        losses[0].backward()
    model = build(ours)
    losses = [model(inputs()).sum() for _ in range(3)]
    losses[0].backward()


def test_nothing_is_remembered_without_gradients():
    model = build(plain)
    with torch.no_grad():
        model(inputs())
    assert not model.first.flipout.roots[0][0].history.spans
    model(inputs())
    assert len(model.first.flipout.roots[0][0].history.spans) == 1


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_generator_that_is_not_set_back_is_refused(use_reentrant: bool) -> None:
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), DISTRIBUTION)
    x = X.detach().to(torch.get_default_device()).clone().requires_grad_()
    options: dict[str, Any] = {"use_reentrant": use_reentrant, "preserve_rng_state": False}
    y = torch.utils.checkpoint.checkpoint(model, x, **options)
    with pytest.raises(errors.AmbiguousReplay, match="preserve_rng_state=False"):
        y.sum().backward()
    torch.manual_seed(3)
    model(x).sum().backward()
    expected, x.grad = x.grad, None
    torch.manual_seed(3)
    flipout.checkpoint(model, x, **options).sum().backward()
    torch.testing.assert_close(x.grad, expected)
