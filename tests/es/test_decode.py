"""Texts by a cache at a fixed place are those of a growing one, also if one step is recorded and then replayed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flipout import errors
from flipout.draws import bits, noise, passes, signs
from flipout.es import _decode as module
from tests.es.language import PROMPTS, gpt2, llama, opt, strategy, windowed

SHOWN = {"input_ids": torch.tensor([[3, 4, 9], [7, 8, 6], [2, 1, 1]])}
MODELS: dict[str, tuple[Any, Any]] = {"llama": (llama, None), "gpt2": (gpt2, None), "opt": (opt, SHOWN)}
NEVER = 60  # a token that ends no text here


class Recorded(TorchDispatchMode):
    """Stands for a CUDA graph: notes every operation and its tensors, and runs them again in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a capture cannot wait for a number"
        result = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.operations:
            memory = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
            for there, again in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(there, Tensor) and there.untyped_storage().data_ptr() not in memory:
                    there.copy_(again)


class Replayed:
    """Stands for `flipout.capture`: two calls as usual, one that is recorded, then replays."""

    replays = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls, self.graph = function, 0, Recorded()

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls <= 2:
            return self.function(*args)
        if self.calls == 3:
            self.inputs = [None if value is None else value.clone() for value in args]
            with self.graph:
                self.result = self.function(*self.inputs)
            return self.result
        for there, value in zip(self.inputs, args, strict=True):
            if there is not None:
                there.copy_(value)
        self.graph.replay()
        Replayed.replays += 1
        return self.result

    def close(self) -> None:
        self.graph.operations.clear()


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "capture", Replayed)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)  # transformers asks before it syncs
    monkeypatch.setattr(Replayed, "replays", 0)
    for file in (bits, noise, passes, signs):  # as on a GPU: nobody sees what numpy computes
        monkeypatch.setattr(file, "uses_numpy", lambda tensor: False)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scheme", ["rank_one", "flipout"])
def test_a_cache_at_a_fixed_place(name: str, scheme: Any) -> None:
    make, shown = MODELS[name]
    (population,) = strategy(make(), scheme=scheme, group=6, example_inputs=shown).ask()
    grown, fixed = (population.generate(PROMPTS, 10, captured=captured) for captured in (False, True))
    assert torch.equal(grown.tokens, fixed.tokens)


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sampling", [{}, {"do_sample": True, "top_k": 9}], ids=["greedy", "sampled"])
def test_a_step_that_is_replayed_writes_the_same(name: str, sampling: dict[str, Any]) -> None:
    """What a step keeps in Python, such as a position, would stay as it was when the step was recorded."""
    make, shown = MODELS[name]
    (population,) = strategy(make(), population=4, example_inputs=shown).ask()
    options = {"eos_token_id": NEVER, "members": 3, **sampling}
    grown, fixed = (population.generate(PROMPTS, 9, captured=captured, **options) for captured in (False, True))
    assert torch.equal(grown.tokens, fixed.tokens)
    assert Replayed.replays >= 8  # of nine tokens in each of two chunks, one is read at once and three make the graph


@pytest.mark.usefixtures("replayed")
def test_the_stand_in_finds_what_stays_in_python() -> None:
    count = [0]

    def step(x: Tensor) -> Tensor:
        count[0] += 1
        return x * count[0]

    captured = Replayed(step)
    assert [float(captured(torch.ones(()))) for _ in range(5)] == [1, 2, 3, 3, 3]
    with pytest.raises(AssertionError, match="cannot wait"), Recorded():
        bool(torch.ones(3).all())


def test_models_whose_cache_moves_are_refused() -> None:
    for name in ("mistral", "gemma3"):
        (population,) = strategy(windowed(name)).ask()
        with pytest.raises(errors.Unsupported, match=r"generate\(captured=True\): .* windows of attention"):
            population.generate(PROMPTS, 4, captured=True)
