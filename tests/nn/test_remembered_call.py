"""A remembered call computes what the long way computes, and every unusual call takes the long way."""

import asyncio
import contextlib
import contextvars
import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import flipout
from flipout.nn.remembered_call import RememberedCall
from flipout.nn.remembered_small import SmallCall
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


CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "hold": lambda model: flipout.hold(model, seed=1),
    "hold, another seed": lambda model: flipout.hold(model, seed=2),
    "hold, a chunk": lambda model: flipout.hold(model, seed=1, first=4),
    "hold, mirrored": lambda model: flipout.hold(model, seed=1, antithetic=True),
    "hold, two rows": lambda model: flipout.hold(model, seed=1, rows=2),
    "hold, groups": lambda model: flipout.hold(model, seed=1, group=3),
    "hold, a later group": lambda model: flipout.hold(model, seed=1, first=6, group=6),
    "hold, fresh": flipout.hold,
    "hold, a part": lambda model: flipout.hold(model[0], seed=3),
    "sampling": flipout.sampling,
    "sampling, a part": lambda model: flipout.sampling(model[2]),
    "shared": lambda model: flipout.using(model, scheme="shared"),
    "flipout": lambda model: flipout.using(model, scheme="flipout"),
    "independent": lambda model: flipout.using(model, scheme="independent"),
}


def drawn_step(model: nn.Module, seed: int) -> list[Tensor]:
    """Return the output and the gradients of a step under torch's seed, or the output alone without gradients."""
    model.zero_grad()
    torch.manual_seed(seed)
    y = model(X)
    if not y.requires_grad:
        return [y]
    y.sin().sum().backward()
    return [y.detach(), *gradients(model).values()]


@pytest.mark.parametrize("program", range(20))
def test_contexts_see_what_the_long_way_sees(model: nn.Sequential, program: int) -> None:
    """Random programs that open and close contexts and change modes. One of two models forgets before each call."""
    random = np.random.default_rng(program)
    other, open_contexts = copy.deepcopy(model), contextlib.ExitStack()
    stacks = []
    with open_contexts:
        for number in range(30):
            action = random.integers(4)
            if action == 0 and len(stacks) < 3:
                name = random.choice(list(CONTEXTS))
                stacks.append(open_contexts.enter_context(contextlib.ExitStack()))
                for each in (model, other):
                    torch.manual_seed(number)
                    stacks[-1].enter_context(CONTEXTS[name](each))
            elif action == 1 and stacks:
                stacks.pop().close()
            elif action == 2:
                is_training = bool(random.integers(2))
                _ = model.train(is_training), other.train(is_training)
            with torch.set_grad_enabled(bool(random.integers(2))):
                for _ in range(2):
                    forget(other)
                    expected = drawn_step(other, number)
                    torch.testing.assert_close(drawn_step(model, number), expected, rtol=0, atol=0)


def short_calls(model: nn.Module, context: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many of three calls inside a context of a model of two layers take the short way, after one more."""
    count = 0
    product = SmallCall._product

    def counted(self: SmallCall, *arguments: Any) -> Tensor | None:
        nonlocal count
        y = product(self, *arguments)
        count += y is not None
        return y

    with context, torch.no_grad():
        model(X)
        monkeypatch.setattr(SmallCall, "_product", counted)
        for _ in range(3):
            model(X)
    return count


@pytest.mark.parametrize("name", CONTEXTS)
def test_usual_contexts_take_the_short_way(model: nn.Sequential, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_usual = name not in {"hold, mirrored", "hold, two rows", "hold, groups", "independent"}
    layers = 1 if name.endswith("a part") else 2 if is_usual else 0
    if name in {"shared", "flipout", "independent"}:
        model.train()
    else:
        model.eval()
    assert short_calls(model, CONTEXTS[name](model), monkeypatch) == 3 * layers


def test_threads_and_tasks_see_their_own_draws(model: nn.Sequential) -> None:
    """Contexts that are open at the same time, in turns drawn at random, do not show each other's draws."""
    model.eval()
    expected = []
    for seed in range(6):
        with flipout.hold(model, seed=seed):
            forget(model)
            expected.append(model(X).detach())

    def in_thread(seed: int) -> bool:
        with flipout.hold(model, seed=seed), torch.no_grad():
            return all(torch.equal(model(X), expected[seed]) for _ in range(50))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(in_thread, range(6)))

    async def in_task(seed: int) -> bool:
        right = []
        with flipout.hold(model, seed=seed):
            for _ in range(20):
                await asyncio.sleep(0)
                right.append(torch.equal(model(X), expected[seed]))
        return all(right)

    async def tasks() -> list[bool]:
        return await asyncio.gather(*(in_task(seed) for seed in range(6)))

    assert all(asyncio.run(tasks()))


def test_a_context_that_ended_elsewhere_is_not_remembered(model: nn.Sequential) -> None:
    """A thread keeps the contexts that it was started in, though they have ended since."""
    model.eval()
    with flipout.hold(model, seed=1):
        for _ in range(2):
            model(X)
        inside = contextvars.copy_context()
        assert torch.equal(inside.run(model, X), model(X))
    assert torch.equal(inside.run(model, X), model(X))  # the mean weights, in both


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


class Placed(nn.Module):
    """Adds what it makes of a table of positions to a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, positions: Tensor, batch: Tensor) -> Tensor:
        return self.layer(positions) + batch


@pytest.mark.parametrize("by_name", [False, True])
def test_inputs_that_disagree_are_refused_after_a_remembered_call(by_name: bool) -> None:
    """Four positions and four examples look alike; six examples show that the layer's rows are no examples."""
    model = flipout.perturb(Placed(), flipout.Gaussian(0.5))
    table, same, other = torch.randn(4, 4), torch.randn(4, 4, 4), torch.randn(6, 4, 4)
    model(table, same)
    assert remembered_calls(model) != [None]
    with pytest.raises(flipout.errors.ExampleCount, match="do not agree"):
        model(table, batch=other) if by_name else model(table, other)
