"""Contexts and forward passes belong to a thread and a task, and to a model."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN, gradients, mlp

X = torch.linspace(-1, 1, 12).view(3, 4)


def held(model: nn.Module, seed: int) -> Tensor:
    with flipout.hold(model, seed=seed), torch.no_grad():
        return model(X)


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Waiting(nn.Module):
    """Waits between its two layers until somebody sets `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.inside, self.go_on = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        self.inside.set()
        assert self.go_on.wait(10)
        return self.second(y)


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return flipout.perturb(mlp(), GAUSSIAN)


def test_threads_hold_one_model_at_once():
    waiting = flipout.perturb(Waiting(), GAUSSIAN)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(held, waiting, 1)
        assert waiting.inside.wait(10)
        waiting.go_on.set()
        ours = held(waiting, 2)
        assert torch.equal(other.result(), held(waiting, 1))
        assert torch.equal(ours, held(waiting, 2))


def test_threads_call_one_model_at_once():
    waiting = flipout.perturb(Waiting(), GAUSSIAN)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(waiting, X)
        assert waiting.inside.wait(10)
        with pytest.raises(errors.Unsupported, match=r"second \(Linear\): called in its own thread while its root, W"):
            waiting.second(X)
        waiting.go_on.set()
        assert not torch.equal(waiting(X), other.result())
        assert waiting.second(X).shape == (3, 2)


@pytest.mark.parametrize("context", [flipout.hold, flipout.sampling, lambda m: flipout.using(m, scheme="shared")])
@pytest.mark.parametrize("training", [True, False])
def test_a_thread_started_inside_a_context_is_refused_or_follows(model, training, context):
    model.train(training)
    with context(model):
        with pytest.raises(errors.Unsupported, match=r"0: called in a thread without a context.*copy_context\(\)\.run"):
            in_thread(lambda: model(X))
        inside = contextvars.copy_context()
        in_copy = in_thread(lambda: inside.run(model, X))
        if context is flipout.hold:
            assert torch.equal(in_copy, model(X))
        assert torch.equal(in_copy, model.eval()(X)) == (
            context is flipout.hold or (context is not flipout.sampling and not training)
        )
    assert in_thread(lambda: model(X)).shape == (3, 3)


def test_a_context_of_its_own_is_enough_in_a_thread(model):
    expected = held(model, 2)
    with flipout.hold(model, seed=1):
        assert torch.equal(in_thread(lambda: held(model, 2)), expected)
        assert not torch.equal(model(X), expected)


def test_using_belongs_to_its_thread(model):
    expected = held(model, 1)
    with flipout.using(model, scheme="shared"):
        assert torch.equal(in_thread(lambda: held(model, 1)), expected)
        assert not torch.equal(held(model, 1), expected)


def test_leaving_sampling_keeps_the_noise_of_other_threads():
    """torch has one switch for the transformer fast path, which all threads share."""
    models = [flipout.perturb(_transformer(), GAUSSIAN).eval() for _ in range(2)]
    x, entered, left = torch.randn(3, 5, 8), threading.Event(), threading.Event()

    def other() -> bool:
        with flipout.sampling(models[1]), torch.no_grad():
            entered.set()
            assert left.wait(10)
            return torch.equal(models[1](x), models[1](x))

    with ThreadPoolExecutor(1) as pool:
        with flipout.sampling(models[0]):
            same = pool.submit(other)
            assert entered.wait(10)
        left.set()
        assert not same.result()
    assert torch.backends.mha.get_fastpath_enabled()


def _transformer() -> nn.Sequential:
    return nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_layer_in_training_mode_inside_an_eval_transformer(by_hand, padded, compiled):
    """The idiom of Monte Carlo dropout. On its fast path, torch would read the means."""
    model: Any = _transformer().eval()
    x = torch.randn(3, 5, 8)
    options = {"src_key_padding_mask": torch.arange(5) > torch.tensor([[4], [2], [3]])} if padded else {}
    with torch.no_grad():
        mean = model[0](x, **options)
        if by_hand:
            linear = flipout.nn.Linear(8, 16, distribution=GAUSSIAN).eval()
            linear.load_state_dict(model[0].layers[1].linear1.state_dict())
            model[0].layers[1].linear1 = linear
            if padded:
                model[0].use_nested_tensor = False
        else:
            flipout.perturb(model, GAUSSIAN, where="0.layers.1.linear1.weight")
            assert torch.equal(model[0](x, **options), mean)
        call = torch.compile(model[0], fullgraph=True, backend="eager") if compiled else model[0]
        if not padded:  # a compiled transformer uses no nested tensors, and writes no zeros into the padding
            torch.testing.assert_close(call(x, **options), mean)
        model[0].layers[1].linear1.train()
        assert not torch.allclose(call(x, **options), call(x, **options), atol=1e-3)


def test_every_thread_has_its_own_checkpoints():
    """Four threads with a model each get the same gradients as one thread that trains the models in turn."""

    models = [flipout.perturb(mlp(), flipout.MeanField(std=0.3), where="*") for _ in range(4)]
    starts = threading.Barrier(4)

    def step(index: int, wait: bool) -> list[dict[str, Tensor]]:
        results = []
        for repeat in range(15):
            if wait:
                starts.wait(10)
            models[index].zero_grad()
            with flipout.hold(models[index], seed=repeat):
                loss = flipout.checkpoint(models[index], X.clone().requires_grad_()).square().sum()
            loss.backward()
            results.append(gradients(models[index]))
        return results

    expected = [step(index, False) for index in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda index: step(index, True), range(4)))
    torch.testing.assert_close(results, expected)


@pytest.mark.parametrize("checkpoint", [flipout.checkpoint, torch.utils.checkpoint.checkpoint])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_recomputation_has_the_scheme_of_its_forward(model, checkpoint, use_reentrant):
    results = []
    for call in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=use_reentrant)):
        model.zero_grad()
        x = X.clone().requires_grad_()
        with flipout.hold(model, seed=1), flipout.using(model, scheme="shared"):
            y = call(model, x)
        y.square().sum().backward()
        results.append([x.grad, *gradients(model).values()])
    torch.testing.assert_close(results[1], results[0])


def test_tasks_have_their_own_contexts(model):
    expected = {seed: held(model, seed) for seed in (1, 2)}

    async def task(seed: int) -> list[Tensor]:
        results = []
        with flipout.hold(model, seed=seed):  # and no torch.no_grad(), which tasks share
            for _ in range(3):
                results.append(model(X))
                await asyncio.sleep(0)
        return results

    async def plain() -> list[Tensor]:
        results = []
        for _ in range(4):
            results.append(model(X))
            await asyncio.sleep(0)
        return results

    async def everything() -> Any:
        return await asyncio.gather(task(1), task(2), plain())

    model.eval()
    first, second, mean = asyncio.run(everything())
    assert all(torch.equal(y, expected[1]) for y in first)
    assert all(torch.equal(y, expected[2]) for y in second)
    assert all(torch.equal(y, model(X)) for y in mean)


def test_a_task_started_inside_a_context_follows_it(model):
    async def everything() -> tuple[Tensor, Tensor]:
        async def call() -> Tensor:
            return model(X)

        with flipout.hold(model, seed=1):
            return await asyncio.create_task(call()), await asyncio.to_thread(model, X)

    task, thread = asyncio.run(everything())
    assert torch.equal(task, held(model, 1))
    assert torch.equal(thread, held(model, 1))


def test_compiled_models_refuse_tasks_that_take_turns(model):
    compiled = torch.compile(model, fullgraph=True, backend="eager")

    async def task(seed: int) -> Tensor:
        with flipout.hold(model, seed=seed):
            await asyncio.sleep(0)
            return compiled(X)

    async def everything() -> Any:
        return await asyncio.gather(task(1), task(2), return_exceptions=True)

    outcomes = asyncio.run(everything())
    assert any("cannot tell tasks apart" in str(outcome) for outcome in outcomes)
    torch.testing.assert_close(asyncio.run(task(1)), held(model, 1))


def test_compiled_models_in_threads(model):
    compiled = torch.compile(model, fullgraph=True, backend="eager")

    def call(seed: int) -> Tensor:
        with flipout.hold(model, seed=seed), torch.no_grad():
            return compiled(X)

    with flipout.hold(model, seed=1), torch.no_grad():
        ours, theirs = compiled(X), in_thread(lambda: call(2))
        torch.testing.assert_close(compiled(X), ours)
        with pytest.raises(Exception, match="called in a thread without a context"):
            in_thread(lambda: compiled(X))
    torch.testing.assert_close(ours, held(model, 1))
    torch.testing.assert_close(theirs, held(model, 2))


def test_generators_that_take_turns_are_refused(model):
    def draws(seed: int) -> Generator[Tensor, None, None]:
        with flipout.hold(model, seed=seed):
            while True:
                yield model(X)

    first, second = draws(1), draws(2)
    for generator in (first, second):
        next(generator)
    with pytest.raises(errors.InterleavedContexts, match=r"0 ends while a later one.*copy\.deepcopy"):
        first.close()
    second.close()
    assert not torch.equal(model(X), model(X))
    assert torch.equal(held(model, 1), held(model, 1))


def test_generators_of_different_models_may_take_turns():
    models = [flipout.perturb(mlp(), GAUSSIAN) for _ in range(2)]

    def draws(model: nn.Module) -> Iterator[Tensor]:
        with flipout.hold(model, seed=1):
            for _ in range(2):
                yield model(X)

    turns = list(zip(*map(draws, models), strict=True))
    for model, outputs in zip(models, zip(*turns, strict=True), strict=True):
        assert all(torch.equal(y, held(model, 1)) for y in outputs)


def test_a_context_that_another_thread_ends_is_over(model):
    """This happens if a generator is collected in another thread."""

    def held_open() -> Generator[None, None, None]:
        with flipout.hold(model, seed=1):
            yield

    left = held_open()
    next(left)
    in_thread(left.close)
    assert not torch.equal(model(X), model(X))
    assert torch.equal(held(model, 2), held(model, 2))


def test_two_threads_that_change_the_mode_are_refused():
    model = flipout.perturb(Waiting(), GAUSSIAN)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(flipout.bayes.predict, model, X, samples=2)
        assert model.inside.wait(10)
        with pytest.raises(errors.Unsupported, match=r"two threads want it in eval mode.*model\.eval\(\)"):
            flipout.bayes.predict(model, X, samples=2)
        model.go_on.set()
        assert other.result().mean.shape == (3, 2)
    assert model.training
    assert flipout.bayes.predict(model, X, samples=2).mean.shape == (3, 2)
