"""Parameters that are read outside of their layers: a batch shows where the examples are in what they meet."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.zoo.oracle import Family, compare

N = 3
Forward = Callable[[Any, Tensor], Tensor]


class Model(nn.Module):
    """A linear layer, then code that reads Parameters by itself."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.inner, self.proj, self.rest = nn.Linear(4, 4), nn.Linear(4, 4), forward
        self.w, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(1, 4))
        self.pos, self.table = nn.Parameter(torch.randn(9, 4)), nn.Parameter(torch.randn(9, 1))
        self.register_buffer("index", torch.randint(0, 9, (N, N)))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self, self.inner(x)).tanh()


def turned(forward: Forward) -> Forward:
    """Give a function its input time first, and turn its output back."""
    return lambda m, x: forward(m, x.transpose(0, 1)).transpose(0, 1)


def heads_first(m: Any, x: Tensor) -> Tensor:
    heads = x.unsqueeze(0) * torch.arange(1.0, N + 1, dtype=x.dtype).view(N, 1, 1, 1)
    return (heads @ m.w).sum(0)


def each_head(m: Any, x: Tensor) -> Tensor:
    scale = torch.linspace(1, 2, N, dtype=x.dtype).view(N, 1, 1)
    return torch.einsum("ntd,hdf->nthf", x, m.w * scale).flatten(2)


def relative(m: Any, x: Tensor) -> Tensor:
    bias = m.table[m.index.view(-1)].view(N, N)
    return (x @ x.mT + bias).softmax(-1) @ x


def windows(m: Any, x: Tensor) -> Tensor:
    y = torch.cat([x, x.cos()], 1).view(2 * len(x), -1, x.shape[-1])
    y = ((y @ y.mT + m.table[m.index.view(-1)].view(N, N)).softmax(-1) @ y).view(len(x), 2, -1)
    return y[:, 0] - y[:, 1]


READS: dict[str, tuple[str, Forward]] = {
    "matmul": ("w", turned(lambda m, x: x @ m.w)),
    "a product and a shift": ("[wb]*", turned(lambda m, x: (x @ m.w) * m.bias)),
    "linear with a layer's weight": ("proj.weight", turned(lambda m, x: F.linear(x, m.proj.weight))),
    "einsum": ("w", turned(lambda m, x: torch.einsum("tnd,df->tnf", x, m.w))),
    "a shift": ("bias", turned(lambda m, x: x + m.bias)),
    "time folded in front": ("w", turned(lambda m, x: (x.flatten(0, 1) @ m.w).view_as(x))),
    "tokens folded": ("w", lambda m, x: (x.flatten(0, 1) @ m.w).view_as(x)),
    "heads first": ("w", heads_first),
    "a weight for each head": ("w", each_head),
    "a slice of positions": ("pos", lambda m, x: x + m.pos[: x.shape[1]]),
    "positions looked up": ("pos", lambda m, x: x + m.pos[torch.arange(x.shape[1])]),
    "a table of relative positions": ("table", relative),
    "windows, and a table of relative positions": (
        "table",
        lambda m, x: windows(m, x).view(x.shape),
    ),
    "two layouts": ("w", lambda m, x: x @ m.w + (x.transpose(0, 1).sin() @ m.w).transpose(0, 1)),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("scheme", ["flipout", "independent"])
def test_reads_are_right_where_all_sizes_are_the_same(name: str, scheme: Any) -> None:
    where, read = READS[name]
    if name == "two layouts":  # in two lines, of which each has its own
        first: Forward = lambda m, x: x @ m.w  # noqa: E731
        second = turned(lambda m, x: x.sin() @ m.w)
        read = lambda m, x: first(m, x) + second(m, x)  # noqa: E731
    x = torch.randn(N, N, 4, dtype=torch.float64)
    options = {"example_inputs": torch.randn(N, N, 4, dtype=torch.float64)}
    family = Family(lambda: Model(read), lambda _: {"x": x}, where=where, scheme=scheme, options=options)
    assert compare(family) < 1e-12


def test_two_layouts_in_one_line_are_refused() -> None:
    x = torch.randn(N, N, 4)
    with pytest.warns(errors.LayoutUnknown, match=r"w: at .*test_probe\.py:\d+ its calls have several layouts"):
        model = flipout.perturb(
            Model(READS["two layouts"][1]), flipout.Gaussian(0.3), where="w", example_inputs=torch.randn(N, 5, 4)
        )
    with pytest.raises(errors.UnservedRead, match=r"w: matmul .* several layouts.*scheme=\{'w': 'shared'"):
        model(x)


def test_rows_of_a_batch_that_are_taken_apart_are_refused() -> None:
    """Each example comes alone, and has the dimension of the batch."""
    x = torch.randn(N, 1, 4)
    model: Any = flipout.perturb(
        Model(lambda m, x: torch.cat([v @ m.w for v in x]).unsqueeze(1)), flipout.Gaussian(0.3), where="w"
    )
    with pytest.raises(errors.UnservedRead, match="its input has 1 row, but the model was called with 3"):
        model(x)


class Folds(nn.Linear):
    """A layer of somebody else that folds its rows before it is a linear layer."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.transpose(0, 1).flatten(0, 1)).unflatten(0, (-1, len(input))).transpose(0, 1)


def test_a_subclass_that_folds_its_input_is_followed() -> None:
    def inputs(examples: int) -> dict[str, Tensor]:
        return {"input": torch.randn(examples, 5, 4, dtype=torch.float64)}

    options = {"example_inputs": inputs(3)}
    assert compare(Family(lambda: nn.Sequential(Folds(4, 4)), inputs, options=options)) < 1e-12


def test_a_batch_in_another_order_is_refused() -> None:
    class Flipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.flip(0)).flip(0)

    x = torch.randn(4, 5, 4)
    with pytest.warns(errors.LayoutUnknown, match="fc: its rows move with other examples"):
        model = flipout.perturb(Flipped(), flipout.Gaussian(0.3), example_inputs=x)
    with pytest.raises(errors.ExampleCount, match=r"other examples.*batch_dim=\{'fc': 0\}"):
        model(x)


class Both(nn.Module):
    """One layer over the tokens, and over something else."""

    def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.other = nn.Linear(4, 4), other

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.fc(self.other(x)).mean() + x)


def test_a_layer_over_a_first_state_is_followed_and_one_over_a_table_refused() -> None:
    x = torch.randn(N, N, 4)
    model = Both(lambda x: torch.zeros(len(x), 4))
    flipout.perturb(model, flipout.Gaussian(0.3), example_inputs=x)(x)
    with pytest.warns(errors.LayoutUnknown, match="fc: its calls have several layouts"):
        model = flipout.perturb(Both(lambda x: torch.eye(N, 4)), flipout.Gaussian(0.3), example_inputs=x)
    with pytest.raises(errors.ExampleCount, match="several layouts"):
        model(x)


class Table(nn.Module):
    """A layer over a table of positions that has as many rows as there are examples."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.project = nn.Linear(4, 4)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        return self.token(ids) + self.project(self.position(places))


def test_a_table_of_positions_is_refused_until_it_is_shared() -> None:
    ids = torch.randint(9, (N, N))
    with pytest.warns(errors.LayoutUnknown, match=r"position, project: nothing in its input moved.*does not depend"):
        model = flipout.perturb(Table(), flipout.Gaussian(0.3), where="*", example_inputs=ids)
    with pytest.raises(errors.ExampleCount, match=r"position .*scheme=\{'position\.\*': 'shared', '\*': 'flipout'\}"):
        model(ids)
    shared = {"position.*": "shared", "project.*": "shared", "*": "flipout"}
    family = Family(Table, lambda n: {"ids": torch.randint(9, (n, N))}, where="*", scheme=shared)
    family.options = {"example_inputs": ids}
    assert compare(family) < 1e-12


class Gated(nn.Module):
    """A branch that a gate hides, until it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.fc = nn.Parameter(torch.zeros(1)), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc((self.gate * x).transpose(0, 1)).transpose(0, 1)


def test_a_gate_that_begins_at_0_hides_nothing() -> None:
    model = Gated()
    model.fc.bias.data.zero_()
    before = {name: (value.clone(), value._version) for name, value in model.named_parameters()}
    flipout.perturb(model, flipout.Gaussian(0.3), example_inputs=torch.randn(N, N, 4))
    assert model.fc.flipout.layout is not None  # pyright: ignore[reportAttributeAccessIssue]
    assert model.fc.flipout.layout.dim == 1  # pyright: ignore[reportAttributeAccessIssue]
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name][0])
        assert value._version == before[name][1]
