"""Samples whose weights are formed run as plain passes, in few Python calls, and say what the long way says."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from benchmarks.small import python_calls
from flipout.bayes import Normal, _fold, predict
from flipout.nn.formed_calls import FormedCalls

NOISE = flipout.MeanField(std=0.3, prior=Normal())
PICTURES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SAMPLES = 12


@pytest.fixture(autouse=True)
def _formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fold.Fold, "_forms", lambda *_: True)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a layer took the short way."""
    called: list[bool] = []
    call = FormedCalls.__call__

    def watched(self: FormedCalls, layer: Any, x: Any) -> Tensor | None:
        y = call(self, layer, x)
        called.append(y is not None)
        return y

    monkeypatch.setattr(FormedCalls, "__call__", watched)
    return called


def outputs(model: nn.Module, x: Tensor, **settings: Any) -> Tensor:
    prediction = predict(model, x, SAMPLES, joint=True, seed=5, keep=True, **settings)
    assert prediction.outputs is not None
    return prediction.outputs


def long_way(model: nn.Module, x: Tensor, **settings: Any) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FormedCalls, "__call__", lambda *_: None)
        return outputs(model, x, **settings)


class Twice(nn.Module):
    """Two dtypes of products with one weight, if `apart`, else two calls of one layer."""

    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self.layer, self.last, self.apart = nn.Linear(8, 8), nn.Linear(8, 2), apart

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x.mean(1)[:, 0])
        with torch.autocast("cpu", enabled=not self.apart and torch.is_autocast_enabled("cpu")):
            return self.last(self.layer(x.float()))


class Sometimes(nn.Module):
    """Calls its second layer in every other pass, and not in the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.passes = nn.Linear(8, 8), nn.Linear(8, 8), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        y = self.first(x.mean(1)[:, 0])
        return y if self.passes % 2 else self.second(y)


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 3, padding="same", groups=2, bias=False),
        nn.ReLU(),
        nn.Flatten(2),
        nn.Conv1d(4, 2, 3, stride=2),
        nn.ConvTranspose1d(2, 2, 3),
        nn.Linear(33, 2),
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], float]] = {
    "convolutions": (convnet, {}, 11 / 12),
    "biases too": (convnet, {"where": "*"}, 11 / 12),
    "learned covariance": (convnet, {"distribution": flipout.LowRankNormal(rank=2, std=0.3, prior=Normal())}, 11 / 12),
    "called twice": (lambda: Twice(apart=False), {}, 11 / 12),
    "two dtypes": (lambda: Twice(apart=True), {}, 0.3),
    "called at times": (Sometimes, {}, 0.6),
}


@pytest.mark.filterwarnings("ignore::flipout.errors.NeverRead")  # the layer that is called at times
@pytest.mark.parametrize("precision", ["float32", "autocast"])
@pytest.mark.parametrize("name", MODELS)
def test_the_short_way_says_what_the_long_way_says(name: str, precision: str, served: list[bool]) -> None:
    make, how, share = MODELS[name]
    torch.manual_seed(0)
    model = flipout.perturb(make(), **{"distribution": NOISE, **how})
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        found = outputs(model, PICTURES)
        if isinstance(model, Sometimes):
            model.passes = 0
        expected = long_way(model, PICTURES)
    if name == "biases too" and precision == "autocast":
        # The long way rounds the product, and then the sum with the noisy bias; a plain layer rounds once.
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.1)
    else:
        assert torch.equal(found, expected)
    if name != "two dtypes" or precision == "autocast":
        assert sum(served) / len(served) >= share - 1e-9, sum(served) / len(served)


def test_mirrored_samples_and_part_of_the_inputs(served: list[bool]) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(convnet(), NOISE)
    for settings in ({"antithetic": True}, {"chunk": 4}, {"group": 2}):
        assert torch.equal(outputs(model, PICTURES, **settings), long_way(model, PICTURES, **settings))
    assert any(served)


def test_a_context_inside_of_a_pass_goes_before() -> None:
    """A model that holds another draw for itself sees that one."""

    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x.mean(1)[:, 0])
            with flipout.hold(self.second, seed=3):
                return self.second(y)

    torch.manual_seed(0)
    model = flipout.perturb(Held(), NOISE)
    assert torch.equal(outputs(model, PICTURES), long_way(model, PICTURES))


def test_threads_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(convnet(), NOISE).eval()
    expected = [long_way(model, x) for x in (PICTURES, -PICTURES)]
    found: dict[int, list[Tensor]] = {0: [], 1: []}

    def work(number: int) -> None:
        for _ in range(5):
            found[number].append(outputs(model, (PICTURES, -PICTURES)[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, wanted in enumerate(expected):
        assert len(found[number]) == 5
        assert all(torch.equal(each, wanted) for each in found[number])


def test_nothing_is_left_behind() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(convnet(), NOISE).eval()
    plain = model(PICTURES)
    outputs(model, PICTURES)
    model[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        outputs(model, PICTURES)
    model[1]._forward_hooks.clear()
    assert all(layer.flipout.formed is None for layer in model if isinstance(layer, flipout.nn.Perturbed))
    assert torch.equal(model(PICTURES), plain)


def blocks(count: int) -> nn.Module:
    layers = [layer for _ in range(count) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())]
    return nn.Sequential(*layers)


def test_a_sample_makes_few_python_calls() -> None:
    """A block of a plain network makes 31. With the long way it made 172 in each sample."""

    def calls(count: int, samples: int) -> float:
        model = flipout.perturb(blocks(count), NOISE)

        def run() -> None:
            predict(model, PICTURES, samples, joint=True, seed=1)

        return python_calls(run)

    def of_plain(count: int) -> float:
        model = blocks(count).eval()

        def run() -> None:
            model(PICTURES)

        return python_calls(run)

    a_block = of_plain(12) - of_plain(4)
    of_sample = (calls(12, 32) - calls(4, 32)) / 32
    assert of_sample <= 3 * a_block, (of_sample, a_block)
    # Without forming, which is shared by the samples of a base, and without the first pass.
    in_base = (calls(12, 16) - calls(12, 12) - calls(4, 16) + calls(4, 12)) / 4
    assert in_base <= 1.5 * a_block, (in_base, a_block)
