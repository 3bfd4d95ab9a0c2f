"""A running `generate` is found among the callers, and a cache knows the draw that wrote it."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.nn.generation import RunningGenerate, running_generation, sequences_of_prompt

NAME = "transformers.generation.utils"


def fake_generate(monkeypatch: pytest.MonkeyPatch, body: str) -> Any:
    """Return a `generate` that looks like that of transformers to its callees."""
    module = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="9.9"))
    exec(f"def generate(step, generation_config):\n    {body}\n    return step()", module.__dict__)
    return module.__dict__["generate"]


def config(beams: int, returned: int = 1) -> SimpleNamespace:
    return SimpleNamespace(num_beams=beams, num_return_sequences=returned)


def test_a_running_call_says_how_many_prompts_and_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = fake_generate(monkeypatch, "batch_size = 4")
    assert running_generation() is None
    assert generate(running_generation, config(3)) == RunningGenerate(4, 3)
    assert generate(running_generation, config(1, 2)) == RunningGenerate(4, 2)
    assert generate(lambda: sequences_of_prompt(12, 1), config(3)) == 3
    assert generate(lambda: sequences_of_prompt(4, 1), config(3)) == 1  # an encoder, before the rows are repeated
    assert generate(lambda: sequences_of_prompt(12, 3), config(3)) == 1  # told
    with pytest.raises(errors.ExampleCount, match=r"rows=2\) divides them between examples"):
        generate(lambda: sequences_of_prompt(12, 2), config(3))


def test_an_unknown_generate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = fake_generate(monkeypatch, "pass")
    with pytest.raises(errors.Unsupported, match=r"transformers 9\.9: its `generate` does not say"):
        generate(running_generation, config(1))


class Cache:
    """Keeps what earlier calls computed, as caches of transformers do."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []

    def get_seq_length(self) -> int:
        return len(self.keys)


class RecurrentCache(Cache):
    def get_seq_length(self) -> int:
        raise ValueError("no attention layer")

    def has_previous_state(self) -> bool:
        return bool(self.keys)


class Step(nn.Module):
    """Adds the keys of all calls so far."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(4, 4)

    def forward(self, x: Tensor, cache: Cache | None = None, kind: type[Cache] = Cache) -> tuple[Tensor, Cache]:
        cache = kind() if cache is None else cache
        cache.keys.append(self.key(x))
        return torch.stack(cache.keys).sum(0), cache


@pytest.fixture
def step() -> Any:
    return flipout.perturb(Step(), flipout.Gaussian(0.5)).eval()


X = torch.randn(3, 4)


@pytest.mark.parametrize("kind", [Cache, RecurrentCache])
def test_a_cache_serves_one_draw(step: Any, kind: type[Cache]) -> None:
    with flipout.hold(step, seed=1):
        y, cache = step(X, kind=kind)
        torch.testing.assert_close(step(X, cache)[0], 2 * y)
    with flipout.hold(step, seed=torch.tensor(1)):
        torch.testing.assert_close(step(X, cache=cache)[0], 3 * y)
    for held in (flipout.hold(step, seed=2), flipout.hold(step, seed=1, first=3), flipout.sampling(step)):
        with held, pytest.raises(errors.StaleCache, match=r"Step: called with a .*Cache that was written under an"):
            step(X, cache)
    with pytest.raises(errors.StaleCache, match="this call has the mean weights"):
        step(X, cache)
    cache.keys.clear()
    step(X, cache)
    with flipout.hold(step, seed=1), pytest.raises(errors.StaleCache, match="written under the mean weights"):
        step(X, cache)


def test_a_cache_that_nobody_wrote_here_is_taken(step: Any) -> None:
    """Prefix tuning makes one of its own."""
    cache = Cache()
    cache.keys.append(X)
    with flipout.sampling(step):
        step(X, cache)


def test_a_refused_call_leaves_the_model_as_it_was(step: Any) -> None:
    with flipout.hold(step, seed=1):
        expected, cache = step(X)
    with flipout.sampling(step), pytest.raises(errors.StaleCache):
        step(X, cache)
    with flipout.hold(step, seed=1):
        assert torch.equal(step(X)[0], expected)
