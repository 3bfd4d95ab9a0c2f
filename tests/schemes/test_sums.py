"""Σ_n F_n ΔW_n, computed without the weights of any member, equals the explicit sum."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout._perturbation import Perturbation
from flipout.errors import NoPopulation
from flipout.nn.held_weights import weighted_sums
from flipout.schemes import SchemeName, independent, low_rank, rank_one, sums
from tests.networks import TiedLM, convnet, encoder
from tests.oracles import weights_of_each

SCHEMES = (flipout.Flipout(), flipout.Flipout(group=3), flipout.Independent(), flipout.LowRank(), flipout.LowRank(3))
SCHEMES += (flipout.RankOne(),)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(3, 4, proj_size=2, bidirectional=True, batch_first=True), nn.GRUCell(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(self.lstm(x)[0][:, -1])


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cube, self.group = nn.LayerNorm([4, 3]), nn.LayerNorm([2, 2, 3]), nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.cube(self.group(self.layer(x)).unflatten(1, (2, 2)))


def image(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


MODELS: dict[str, tuple[Any, Any]] = {
    "linear": (lambda: nn.Linear(5, 3), lambda n: image(n, 5)),
    "convolutions": (convnet, lambda n: image(n, 2, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), lambda n: image(n, 4, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), lambda n: image(n, 4, 4, 4)),
    "attention": (lambda: encoder(layers=1), lambda n: image(n, 3, 8)),
    "norms": (Norms, lambda n: image(n, 4, 3)),
    "recurrent": (Cells, lambda n: image(n, 4, 3)),
    "tied": (TiedLM, lambda n: torch.randint(7, (n, 2))),
    "padded": (lambda: nn.Embedding(130, 3, padding_idx=1), lambda n: torch.randint(130, (n, 2))),
}


def check(model: nn.Module, x: Tensor, coefficients: Tensor, **fields: Any) -> None:
    with flipout.hold(model, seed=7, **fields), torch.no_grad():
        model(x)
        pairs = list(weighted_sums(model, coefficients))
        totals = {id(parameter): total for parameter, total in pairs}
        assert len(pairs) == len(totals) == len(list(model.parameters()))
        for name, weights in weights_of_each(model).items():
            parameter = model.get_parameter(name)
            expected = torch.tensordot(coefficients, weights - parameter, 1)
            torch.testing.assert_close(totals[id(parameter)], expected, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_over_members(name: str, scheme: flipout.Scheme) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = flipout.perturb(make().double().eval(), flipout.Gaussian(0.3), scheme=scheme, where="*")
    for fields in ({}, {"first": 130, "antithetic": True}, {"first": 4, "group": 2}):
        check(model, inputs(7), image(7), **fields)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_sum_over_members_of_drawn_shapes(data: Any) -> None:
    """Also if memory limits a chunk to a part of a group, or to a few groups."""
    ints = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    groups = ints(1, 3)
    kind = data.draw(st.sampled_from([nn.Conv1d, nn.ConvTranspose1d]))
    conv = kind(groups * ints(1, 3), groups * ints(1, 3), ints(1, 3), groups=groups).double()
    scheme = data.draw(st.sampled_from(SCHEMES))
    model = flipout.perturb(conv, flipout.Gaussian(0.5), scheme=scheme, where="*")
    n, limit = ints(1, 9), data.draw(st.sampled_from([1, 20, 100, 10**6]))
    group = data.draw(st.sampled_from([None, 1, 2, 4]))
    with pytest.MonkeyPatch.context() as patch:
        for module in (sums, independent, low_rank, rank_one):
            patch.setattr(module, "numbers_per_chunk", lambda tensor: limit)
        check(model, image(n, conv.in_channels, 5), image(n), first=ints(0, 5), group=group, antithetic=ints(0, 1) == 1)


def test_half_precision_is_summed_in_single_precision() -> None:
    model = flipout.nn.Linear(8, 4, distribution=flipout.Gaussian(0.1), dtype=torch.bfloat16)
    with flipout.hold(model, seed=1, group=2), torch.no_grad():
        model(torch.randn(64, 8).bfloat16())
        ((_, total),) = weighted_sums(model, torch.ones(64))
        deltas = flipout.example_weights(model)["weight"].double() - model.weight.double()
    assert total.dtype == torch.float32
    torch.testing.assert_close(total.double(), deltas.sum(0), rtol=0.02, atol=0.02)


def test_memory_does_not_grow_with_the_population(monkeypatch) -> None:
    """At most 10,000 numbers of noise are drawn at a time, and each only once."""
    drawn: list[int] = []
    model = flipout.nn.Linear(20, 30, bias=False, distribution=flipout.Gaussian(0.1))
    deltas = Perturbation.deltas
    monkeypatch.setattr(Perturbation, "deltas", lambda p, f, c: drawn.append(c * 600) or deltas(p, f, c))
    for module in (sums, independent, low_rank, rank_one):
        monkeypatch.setattr(module, "numbers_per_chunk", lambda tensor: 10_000)
    for scheme in ("flipout", "independent"):
        with flipout.using(model, scheme=scheme), flipout.hold(model, seed=1, group=4):
            list(weighted_sums(model, torch.ones(1000)))
    assert max(drawn) <= 10_000
    assert sum(drawn) == 600 * (250 + 1000)


@pytest.mark.parametrize("scheme", ["shared", "local_reparam"])
def test_schemes_without_separate_perturbations_are_refused(scheme: SchemeName) -> None:
    model = flipout.nn.Linear(3, 2, distribution=flipout.Gaussian(0.1), scheme=scheme)
    with flipout.hold(model):
        model(torch.randn(4, 3))
        with pytest.raises(NoPopulation, match=r"can never serve a population.*scheme='flipout'"):
            list(weighted_sums(model, torch.ones(4)))


def test_chunks_are_smaller_on_a_cpu() -> None:
    assert sums.numbers_per_chunk(torch.empty(0)) < sums.numbers_per_chunk(torch.empty(0, device="meta"))
