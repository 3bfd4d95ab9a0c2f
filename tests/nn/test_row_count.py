"""Rows that cannot be the examples are refused, a single row too."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors


class Map(nn.Module):
    """Calls one layer as it is told to."""

    def __init__(self, layer: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.call = copy.deepcopy(layer), call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x)


def examples_of(model: Any, x: Tensor) -> int:
    """Return how many examples one pass has counted."""
    with flipout.hold(model, seed=1):
        model(x)
        return len(next(iter(flipout.example_weights(model.layer).values())))


def lstm(batch_first: bool = False) -> nn.Module:
    return nn.LSTM(4, 4, batch_first=batch_first)


ONE_BY_ONE: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "a batch of one": (nn.Linear(4, 4), lambda f, x: torch.cat([f(v[None]) for v in x]), (3, 5, 4)),
    "a vector": (nn.Linear(4, 4), lambda f, x: torch.stack([f(v) for v in x]), (3, 4)),
    "an image": (nn.Conv2d(3, 2, 3), lambda f, x: torch.stack([f(v) for v in x]), (5, 3, 6, 6)),
    "a sequence": (lstm(), lambda f, x: torch.stack([f(v)[0] for v in x]), (5, 3, 4)),
    "a sequence of a batch": (lstm(True), lambda f, x: torch.cat([f(v[None])[0] for v in x]), (5, 3, 4)),
    "a cell": (nn.GRUCell(4, 4), lambda f, x: torch.stack([f(v[0]) for v in x]), (5, 3, 4)),
    "attention": (nn.MultiheadAttention(4, 2), lambda f, x: torch.stack([f(v, v, v)[0] for v in x]), (5, 3, 4)),
}


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("case", ONE_BY_ONE)
@pytest.mark.filterwarnings("ignore::flipout.errors.LayoutUnknown")
def test_a_layer_that_sees_the_examples_one_by_one_is_refused(case: str, shown: bool) -> None:
    layer, call, shape = ONE_BY_ONE[case]
    options: Any = {"example_inputs": torch.randn(shape)} if shown else {}
    model = flipout.perturb(Map(layer, call), flipout.Gaussian(0.3), **options)
    with pytest.raises(errors.ExampleCount):
        model(torch.randn(shape))
    if not shown:
        with pytest.raises(errors.ExampleCount, match=r"1 row, .*called with [35].*batch_dim=\{'layer': 0\}"):
            model(torch.randn(shape))


SINGLE: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "an image": (nn.Conv2d(3, 2, 3), lambda f, x: f(x), (3, 6, 6)),
    "an image without channels": (nn.Conv2d(1, 2, 3), lambda f, x: f(x[None]), (6, 6)),
    "a sequence": (lstm(), lambda f, x: f(x)[0], (5, 4)),
    "a sequence with a batch of one": (lstm(), lambda f, x: f(x)[0], (5, 1, 4)),
    "attention": (nn.MultiheadAttention(4, 2), lambda f, x: f(x, x, x)[0], (5, 4)),
    "a cell": (nn.GRUCell(4, 4), lambda f, x: f(x), (4,)),
    "a vector": (nn.Linear(4, 4), lambda f, x: f(x), (4,)),
    "a batch of one": (nn.Linear(4, 4), lambda f, x: f(x), (1, 4)),
}


@pytest.mark.parametrize("case", SINGLE)
def test_a_single_example_needs_no_dimension_of_its_own(case: str) -> None:
    layer, call, shape = SINGLE[case]
    model = flipout.perturb(Map(layer, call), flipout.Gaussian(0.3))
    assert examples_of(model, torch.randn(shape)) == 1
    model(torch.randn(shape))


def test_rows_that_were_told_are_believed() -> None:
    model = flipout.perturb(Map(*ONE_BY_ONE["a vector"][:2]), flipout.Gaussian(0.3), batch_dim={"layer": 0})
    assert examples_of(model, torch.randn(3, 4)) == 1


def test_frames_folded_into_a_convolution_are_refused() -> None:
    """A convolution has its examples in dimension 0, whatever a caller has put there."""
    frames = Map(nn.Conv1d(4, 4, 3), lambda f, x: f(x.flatten(0, 1)))
    with pytest.raises(errors.ExampleCount, match="6 rows, but the model was called with 3 "):
        flipout.perturb(frames, flipout.Gaussian(0.3))(torch.randn(3, 2, 4, 5))


def test_a_time_major_model_of_torch_has_its_examples_in_dimension_1() -> None:
    model = flipout.perturb(Map(lstm(), lambda f, x: f(x)[0]), flipout.Gaussian(0.3))
    assert examples_of(model, torch.randn(5, 3, 4)) == 3


class Prompted(nn.Module):
    """A prompt that all examples share, made by two layers, in front of the examples' own tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.tokens = nn.Embedding(2, 4), nn.Embedding(9, 4)
        self.prompt = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 4)

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        prompt = self.prompt(self.table.weight[None]).expand(len(ids), -1, -1)
        return self.head(torch.cat([prompt, self.tokens(ids)], 1))


@pytest.mark.parametrize("where", [None, "prompt*"])
@pytest.mark.parametrize("positions", [None, torch.zeros(1, 5)])
def test_an_input_that_all_examples_share(where: str | None, positions: Tensor | None) -> None:
    ids = torch.randint(9, (3, 5))
    model = flipout.perturb(Prompted(), flipout.Gaussian(0.3), where=where)
    with pytest.raises(errors.ExampleCount, match=r"1 row, .* scheme=\{'prompt\.\*': 'shared', '\*': 'flipout'\}"):
        model(ids, positions)
    shared: Any = {"prompt.*": "shared", "*": "flipout"}
    flipout.perturb(Prompted(), flipout.Gaussian(0.3), scheme=shared)(ids, positions)


class Chunks(nn.Module):
    """Folds chunks into the rows, or turns the input, where it is long."""

    def __init__(self, turns: bool) -> None:
        super().__init__()
        self.layer, self.turns = nn.Linear(4, 4), turns

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] <= 4:
            return self.layer(x)
        if self.turns:
            return self.layer(x.transpose(0, 1)).transpose(0, 1)
        return self.layer(x.reshape(-1, 4, x.shape[-1])).view_as(x)


@pytest.mark.parametrize("turns", [False, True])
def test_another_layout_than_was_shown_is_refused(turns: bool) -> None:
    model = flipout.perturb(Chunks(turns), flipout.Gaussian(0.3), example_inputs=torch.randn(3, 4, 4))
    for _ in range(3):
        model(torch.randn(3, 4, 4))
    with pytest.raises(errors.ExampleCount, match=rf"{8 if turns else 6} rows, but the model was called with 3 "):
        model(torch.randn(3, 8, 4))


def test_the_hint_to_share_is_given_both_ways() -> None:
    """Outside of the model nothing is known of its batch."""
    layers: Any = flipout.perturb(nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}), flipout.Gaussian(0.3))
    for first, then in (("a", "b"), ("b", "a")):
        for rows in ((1, 3), (3, 1)):
            shared = first if rows[0] == 1 else then
            hint = rf"scheme=\{{'{shared}\.\*': 'shared', '\*': 'flipout'\}}"
            with flipout.hold(layers):
                layers[first](torch.randn(rows[0], 4))
                with pytest.raises(errors.ExampleCount, match=hint):
                    layers[then](torch.randn(rows[1], 4))


def test_as_many_steps_as_examples_are_named_where_only_batch_dim_was_told() -> None:
    """The rows of a time-major layer are then as many as the examples, and nothing but a batch can show the mistake."""
    linear, turned = nn.Linear(4, 4), lambda f, x: f(x.transpose(0, 1)).transpose(0, 1)
    square, oblong = torch.randn(3, 3, 4), torch.randn(3, 5, 4)
    said = r"layer \(Linear\): its input has 3 examples and 3 time steps.*batch_dim=\{'layer': 0\}"
    model = flipout.perturb(Map(linear, turned), flipout.Gaussian(0.3), batch_dim=0)
    with pytest.warns(errors.LayoutUnknown, match=said):
        model(square)
    model(square)  # once a model
    with pytest.raises(errors.ExampleCount):
        model(oblong)


@pytest.mark.parametrize(
    "options",
    [{"batch_dim": {"layer": 0}}, {"batch_dim": 0, "scheme": "shared"}, {"example_inputs": torch.randn(3, 5, 4)}, {}],
)
def test_nothing_is_said_of_equal_sizes_where_the_layout_is_known_or_was_not_told(options: dict[str, Any]) -> None:
    model = flipout.perturb(Map(nn.Linear(4, 4), lambda f, x: f(x)), flipout.Gaussian(0.3), **options)
    model(torch.randn(3, 3, 4))


def test_equal_sizes_say_nothing_of_convolutions_and_features() -> None:
    for layer, shape in ((nn.Conv2d(3, 3, 3), (3, 3, 3, 3)), (nn.Linear(4, 4), (4, 4)), (nn.Linear(4, 4), (1, 1, 4))):
        model = flipout.perturb(Map(layer, lambda f, x: f(x)), flipout.Gaussian(0.3), batch_dim=0)
        model(torch.randn(shape))
