"""Layouts learned from a batch: examples are found, not guessed."""

import copy
import pickle
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.nn.layouts import Layout, learn_layouts
from tests.nn.folded import Followed


class Folding(nn.Module):
    """Layers that see the examples in many ways."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("plain", "tokens", "flat", "time_first", "time_flat", "windows", "constant", "mixed", "routed"):
            setattr(self, name, nn.Linear(4, 4))
        self.once = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, *, shift: float = 0.0) -> Tensor:
        layers: Any = self
        n, t, f = x.shape
        y = layers.plain(x[:, 0]) + layers.tokens(x).sum(1)
        y = y + layers.flat(x.reshape(n * t, f)).view(n, t, f).sum(1)
        y = y + layers.time_first(x.transpose(0, 1)).sum(0)
        y = y + layers.time_flat(x.transpose(0, 1).reshape(t * n, f)).view(t, n, f).sum(0)
        y = y + layers.windows(x.unflatten(1, (2, t // 2)).flatten(0, 1)).mean(1).view(n, 2, f).sum(1)
        y = y + layers.constant(torch.ones(1, f)) + shift
        mixed = layers.mixed(x - x.mean(0)).sum(1)
        picked = x[x[..., 0] > 0]
        return self.once(self.norm(y)) + mixed + layers.routed(picked).sum()


@pytest.mark.parametrize("count", [3, 6])  # T is 6 too
def test_each_layout(count: int) -> None:
    torch.manual_seed(1)
    model = Folding()
    labels = {label: module for label, module in model.named_modules() if isinstance(module, nn.Linear)}
    learned = learn_layouts(model, labels, torch.randn(count, 6, 4))
    assert learned.layouts == {
        "plain": Layout(0, "plain"),
        "tokens": Layout(0, "plain"),
        "flat": Layout(0, "example-major"),
        "time_first": Layout(1, "plain"),
        "time_flat": Layout(0, "position-major"),
        "windows": Layout(0, "example-major"),
        "once": Layout(0, "plain"),
    }
    assert "nothing" in learned.unknown["constant"]
    assert "every example moves rows of the others" in learned.unknown["mixed"]
    assert "depends on the data" in learned.unknown["routed"]
    assert "no call" in learned.unknown["unused"]


def test_nothing_is_disturbed() -> None:
    model = Folding().train()
    model.norm.eval()
    x, state = torch.randn(3, 6, 4), {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.get_rng_state()
    learn_layouts(model, {"plain": model.plain}, (x,))  # pyright: ignore[reportArgumentType]
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert not model.norm.training
    torch.testing.assert_close(model.state_dict(), state)
    assert not model.plain._forward_pre_hooks  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
@pytest.mark.parametrize("shape", [(3, 6), (6, 6), (2, 4)])
@pytest.mark.parametrize("noise", [flipout.Gaussian(0.3), flipout.MeanField(std=0.3)], ids=["fixed", "learned"])
def test_each_example_has_one_weight(scheme: Any, shape: tuple[int, int], noise: Any) -> None:
    """Each example alone, under the weights that it saw, gives its row; T == N, and other sizes than were shown."""
    model: Any = Followed().double()
    flipout.perturb(model, noise, scheme=scheme, where="*", example_inputs=torch.randn(3, 6, 4).double())
    x = torch.randn(*shape, 4, dtype=torch.float64)
    with flipout.hold(model, seed=9):
        y = model(x)
        seen = {
            f"{label}.{name}": weights
            for label, layer in model.named_modules()
            if isinstance(layer, flipout.nn.Perturbed)
            for name, weights in flipout.example_weights(layer).items()
        }
    model.eval()
    for n in range(len(x)):
        alone = torch.func.functional_call(model, {name: weights[n] for name, weights in seen.items()}, (x[n : n + 1],))
        torch.testing.assert_close(y[n : n + 1], alone)
    y.sum().backward()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_in_training_and_compiled() -> None:
    """Dynamo does not take recurrent layers."""
    plain = Followed(recurs=False)
    model: Any = flipout.perturb(plain, flipout.Gaussian(0.3), example_inputs=(torch.randn(3, 6, 4),))
    x, y = torch.randn(5, 6, 4), torch.empty(0)
    for _ in range(3):
        torch.manual_seed(2)
        y = model(x)
    torch.compiler.reset()
    torch.manual_seed(2)
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), y)
    torch.compiler.reset()


def test_copies_keep_what_was_learned() -> None:
    model: Any = flipout.perturb(Followed(), flipout.Gaussian(0.3), example_inputs=torch.randn(3, 6, 4))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(torch.randn(4, 6, 4))
        assert other.flat.flipout.layout == Layout(0, "example-major")


def test_unknown_layouts_are_named() -> None:
    with pytest.warns(errors.LayoutUnknown, match=r"4 perturbed layer.*constant: nothing in its input moved.*where"):
        flipout.perturb(Folding(), flipout.Gaussian(0.1), example_inputs={"x": torch.randn(3, 6, 4)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flipout.perturb(Folding(), flipout.Gaussian(0.1), scheme="shared", example_inputs=torch.randn(3, 6, 4))


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "one example": (torch.randn(1, 6, 4), {}, "1 example in dimension 0; expected two or more"),
    "no tensor": ({"shift": 1.0}, {}, "no tensor among them"),
    "several counts": ((torch.randn(3, 6, 4), torch.randn(2)), {}, r"\(3, 6, 4\), \(2,\) do not agree"),
    "told otherwise": (torch.randn(3, 6, 4), {"batch_dim": {"time_first": 0}}, "batch_dim=0 given, but .*dimension 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_batches_are_refused(case: str) -> None:
    inputs, options, message = REFUSED[case]
    model = Folding()
    with pytest.raises(errors.FlipoutError, match=message):
        flipout.perturb(model, flipout.Gaussian(0.1), example_inputs=inputs, **options)
    assert not any(isinstance(module, flipout.nn.Perturbed) for module in model.modules())
    assert not model._forward_pre_hooks


def test_it_costs_five_passes() -> None:
    model, calls = Followed(), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    flipout.perturb(model, flipout.Gaussian(0.3), example_inputs=torch.randn(8, 6, 4))
    assert len(calls) <= 5


@pytest.mark.parametrize("fold", [False, True])
def test_a_time_major_model(fold: bool) -> None:
    """`batch_dim` then says where the batch itself has its examples, and each layer's layout is learned."""

    class TimeMajor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.lstm(x)[0]
            return self.head(y.flatten(0, 1)).view(*y.shape[:2], 3) if fold else self.head(y[-1])

    x = torch.randn(6, 4, 4)
    model: Any = flipout.perturb(TimeMajor(), flipout.Gaussian(0.3), example_inputs=x, batch_dim=1)
    with flipout.hold(model, seed=1):
        model(torch.randn(6, 6, 4))  # as many steps as sequences
        assert len(flipout.example_weights(model.head)["weight"]) == 6
    with pytest.raises(errors.Unsupported, match=r"say so: perturb\(…, example_inputs=…, batch_dim=1\)"):
        flipout.perturb(TimeMajor(), flipout.Gaussian(0.3), example_inputs=x)


class Counted(nn.Module):
    """Counts its calls, and refuses tokens of which 3 is not the first, as a model does that has places for images."""

    def __init__(self, is_strict: bool) -> None:
        super().__init__()
        self.embed, self.fc, self.is_strict = nn.Embedding(9, 4), nn.Linear(4, 4), is_strict
        self.calls = Counter[str]()  # no plain container, so that it is not put back

    def forward(self, ids: Tensor) -> Tensor:
        self.calls["forward"] += 1
        if self.is_strict and not bool((ids[:, 0] == 3).all() and (ids[:, 1:] != 3).all()):
            raise ValueError("no place for the image")
        return self.fc(self.embed(ids).flatten(0, 1))


@pytest.mark.parametrize(("is_strict", "most"), [(False, 5), (True, 8)])
def test_a_conversion_costs_few_forward_passes(is_strict: bool, most: int) -> None:
    ids = torch.tensor([[3, 4, 5], [3, 5, 6], [3, 7, 8], [3, 4, 8]])
    model = flipout.perturb(Counted(is_strict), flipout.Gaussian(0.1), example_inputs=ids)
    assert 5 <= model.calls["forward"] <= most <= 10
    assert model.fc.flipout.layout == Layout(0, "example-major")


def test_another_name_of_a_tied_weight_need_not_be_called() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.embed, self.head = nn.Embedding(9, 4), nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.shared.weight = self.embed.weight = self.head.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flipout.perturb(Tied(), flipout.Gaussian(0.1), example_inputs=torch.randint(9, (3, 5)))


class Latents(nn.Module):
    """Repeats a table for each example before a layer, as Perceiver does, and asks it of the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("latents", torch.randn(5, 4))
        self.places = nn.Embedding(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        latents: Any = self.latents
        q, k = self.query(latents.expand(len(x), 5, 4)), self.key(x + self.places(torch.arange(x.shape[1])))
        return (q @ k.mT).softmax(-1) @ k


def test_rows_that_are_repeated_for_each_example_belong_to_it() -> None:
    """Nothing in them moves, but one more example makes one more of them. Positions stay as many as they are."""
    where = ["query.weight", "key.weight", "places.weight"]
    with pytest.warns(errors.LayoutUnknown, match=r"places: nothing in its input moved"):
        model: Any = flipout.perturb(Latents(), flipout.Gaussian(0.3), where=where, example_inputs=torch.randn(3, 7, 4))
    assert model.query.flipout.layout == Layout(0, "plain")
    assert model.places.flipout.layout is None


def test_a_model_with_a_fixed_number_of_examples_is_shown_no_more() -> None:
    class Fixed(Latents):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) != 3:
                raise ValueError("three examples")
            return super().forward(x)

    with pytest.warns(errors.LayoutUnknown, match=r"query: nothing in its input moved"):
        flipout.perturb(Fixed(), flipout.Gaussian(0.3), example_inputs=torch.randn(3, 7, 4))


def test_calls_that_differ_in_the_fold_alone_have_one_layout() -> None:
    """One layer sees a token for each region, and the windows of the regions."""

    class Regions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.flatten(0, 1)).view(x.shape) + self.fc(x.mean(1))[:, None]

    plain = Regions().double()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    model: Any = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3), example_inputs=x)
    assert model.fc.flipout.layout == Layout(0, "example-major")
    with flipout.hold(model, seed=1):
        y = model(x)
        for n, weight in enumerate(flipout.example_weights(model.fc)["weight"]):
            plain.fc.weight.data = weight
            torch.testing.assert_close(y[n : n + 1], plain(x[n : n + 1]))


def test_batch_dim_says_which_of_several_inputs_has_the_examples() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, positions: Tensor, x: Tensor) -> Tensor:
            return self.fc((x + positions[:, None]).transpose(0, 1)).transpose(0, 1)

    inputs = torch.randn(7), torch.randn(3, 7, 4)
    with pytest.raises(errors.InvalidInput, match=r"do not agree .* batch_dim=0\)"):
        flipout.perturb(Placed(), flipout.Gaussian(0.3), example_inputs=inputs)
    model: Any = flipout.perturb(Placed(), flipout.Gaussian(0.3), example_inputs=inputs, batch_dim=0)
    assert model.fc.flipout.layout == Layout(1, "plain")
    with flipout.hold(model, seed=1):
        model(*inputs)
        assert len(flipout.example_weights(model.fc)["weight"]) == 3
