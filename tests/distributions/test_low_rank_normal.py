"""A learned covariance: the weights of an example have it in full, and every layer equals the loop over examples."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout.errors import InvalidArgument, NoPopulation
from flipout.nn.held_weights import weighted_sums
from flipout.schemes import SchemeName
from tests import many_draws
from tests.oracles import Case, Draws, check_chunks, check_eval, check_truth, draws, tensor
from tests.statistics import assert_covariance, assert_mean, assert_same_mean, assert_uncorrelated

NOISE = flipout.LowRankNormal(rank=2, std=0.2, factor_std=0.3)
SCHEMES: tuple[SchemeName, ...] = ("shared", "flipout", "independent")


def linear(scheme: SchemeName = "flipout", **options: Any) -> flipout.nn.Linear:
    torch.manual_seed(0)
    return flipout.nn.Linear(3, 2, distribution=NOISE, scheme=scheme, dtype=torch.float64, **options)


def covariance(layer: nn.Module, name: str = "weight") -> Tensor:
    std = F.softplus(layer.get_parameter(f"{name}_rho")).detach().flatten()
    factors = layer.get_parameter(f"{name}_factors").detach().flatten(1)
    return std.square().diag() + factors.T @ factors


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_weights_of_an_example_have_the_whole_covariance(scheme: SchemeName) -> None:
    layer = linear(scheme, where="*")
    x = torch.ones(2, 3, dtype=torch.float64)
    for name in ("weight", "bias"):
        seen = many_draws.weights(layer, x, many_draws.seeds(20_000), name).flatten(2)
        for example in seen.unbind(1):
            assert_mean(example, layer.get_parameter(name).detach().flatten())
            assert_covariance(example, covariance(layer, name))


@pytest.mark.parametrize("scheme", ["flipout", "independent"])
def test_examples_are_uncorrelated(scheme: SchemeName) -> None:
    layer = linear(scheme)
    seen = many_draws.weights(layer, torch.ones(2, 3, dtype=torch.float64), many_draws.seeds(20_000)).flatten(2)
    assert_uncorrelated(seen[:, 0], seen[:, 1])


def test_local_reparameterisation_has_the_outputs_covariance() -> None:
    layer = linear("local_reparam")
    x = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    outputs = many_draws.outputs(layer, x, many_draws.seeds(20_000)).squeeze(1)
    blocks = covariance(layer).view(2, 3, 2, 3)
    assert_mean(outputs, layer.eval()(x).detach().squeeze(0))
    assert_covariance(outputs, torch.einsum("iajb,a,b->ij", blocks, x[0], x[0]))


def test_gradients_are_unbiased() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    flipout.perturb(model, NOISE)
    x = torch.randn(4, 3, dtype=torch.float64)
    flipped = many_draws.gradients(model, x, "flipout", many_draws.seeds(5_000))
    independent = many_draws.gradients(model, x, "independent", many_draws.seeds(5_000, 5_000))
    assert_same_mean(flipped, independent)


def cases(rows: int, count: int) -> list[Case]:
    n = rows * count
    lstm = nn.LSTM(2, 3, batch_first=True)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    index = torch.randint(5, (n, 3))
    return [
        Case(nn.Linear(3, 2), (tensor(n, 4, 3),), where="*"),
        Case(nn.Conv2d(2, 4, 2, groups=2, padding=1), (tensor(n, 2, 3, 3),), where="*"),
        Case(nn.ConvTranspose1d(2, 3, 2, stride=2), (tensor(n, 2, 3),)),
        Case(nn.Embedding(5, 3, padding_idx=1), (index,), where="weight"),
        Case(nn.LayerNorm(3), (tensor(n, 4, 3),), where="*"),
        Case(nn.GRUCell(2, 3), (tensor(n, 2), tensor(n, 3)), (0, 0), where="*"),
        Case(lstm, (tensor(n, 4, 2),), out_dims=(0,), call=lambda m, x: m(x)[0], where="*"),
        Case(attention, (tensor(n, 3, 4),), call=lambda m, x: m(x, x, x)[0], where="*"),
    ]


@settings(max_examples=4)
@given(draw=draws, count=st.integers(1, 3))
def test_layers_equal_the_loop(draw: Draws, count: int) -> None:
    for case in cases(draw.rows, count):
        for scheme in (*SCHEMES, flipout.Flipout(group=2)):
            layer = flipout.perturb(copy.deepcopy(case.module).double(), NOISE, scheme=scheme, where=case.where)
            case.module.double()
            try:
                check_truth(case, layer, draw)
                check_chunks(case, layer, draw)
                check_eval(case, layer)
            except AssertionError as error:
                raise AssertionError(f"{scheme}, {draw}, {case}") from error


def test_reads_outside_the_layer_have_it_too() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(3, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.proj.weight.T

    model = flipout.perturb(Reads().double(), NOISE)
    x = tensor(4, 3)
    with flipout.hold(model, seed=1):
        y, seen = model(x), flipout.example_weights(model.proj)["weight"]
    torch.testing.assert_close(y, torch.einsum("ni,noi->no", x, seen))


def test_compiled_and_saved() -> None:
    layer = linear()
    x = tensor(4, 3, grad=False)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with flipout.hold(layer, seed=3):
        expected = layer(x)
        torch.testing.assert_close(compiled(x), expected)
    other = flipout.nn.Linear(3, 2, distribution=NOISE, dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    with flipout.hold(other, seed=3):
        torch.testing.assert_close(other(x), expected)
    copied = copy.deepcopy(layer)
    with flipout.hold(copied, seed=3):
        torch.testing.assert_close(copied(x), expected)
    assert type(flipout.freeze(layer)) is nn.Linear
    assert set(layer.state_dict()) == {"weight", "bias"}


def test_bad_input_is_refused() -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"rank": 0},
        {"rank": 1.5},
        {"std": 0.0},
        {"factor_std": -1.0},
        {"std": float("nan")},
    )
    for options in refused:
        with pytest.raises(InvalidArgument, match=next(iter(options))):
            flipout.LowRankNormal(**options)


def test_a_population_is_refused() -> None:
    layer = linear()
    with flipout.hold(layer, seed=1):
        layer(tensor(4, 3))
        with pytest.raises(NoPopulation, match="not learned"):
            list(weighted_sums(layer, torch.ones(4)))
