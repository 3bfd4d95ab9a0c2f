"""Linear layers equal a loop over examples."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import flipout
from flipout.schemes import SchemeName
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor

sizes = st.integers(1, 4)


@st.composite
def linears(draw: Any, rows: int) -> Case:
    module = nn.Linear(draw(sizes), draw(sizes), bias=draw(st.booleans()))
    where = draw(st.sampled_from([None, "*"] if module.bias is None else [None, "*", "bias"]))
    leading = draw(st.lists(sizes, max_size=3))
    batch_dim = draw(st.integers(0, len(leading)))
    leading.insert(batch_dim, rows * draw(st.integers(1, 5)))
    x = tensor(*leading, module.in_features)
    return Case(module, (x,), (batch_dim,), (batch_dim,), where=where, batch_dim=batch_dim)


@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_batches(data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(linears(draw.rows)), draw, offset)


@settings(max_examples=8)
@given(first=st.integers(0, 300), where=st.sampled_from([None, "*"]), offset=offsets)
def test_unbatched(first: int, where: str | None, offset: int) -> None:
    check(Case(nn.Linear(3, 4), (tensor(3),), (None,), where=where), Draws(first), offset)
    check(Case(nn.Linear(3, 4), (tensor(3),), (None,), where=where, batch_dim=1), Draws(first), offset)


@pytest.mark.parametrize("features", [127, 129, 300])
def test_signs_of_many_features(features: int) -> None:
    check(Case(nn.Linear(features, 2), (tensor(3, features),)), Draws(5), 2)
    check(Case(nn.Linear(2, features), (tensor(3, 2),), where="*"), Draws(5), 2)


@pytest.mark.parametrize("group", [1, 2, 3, None])
def test_a_group_shares_one_base(group: int | None) -> None:
    layer = flipout.nn.Linear(6, 5, distribution=flipout.Gaussian(0.3)).double()
    size = 8 if group is None else group
    with flipout.hold(layer, first=1, group=group):
        layer(tensor(7, 6))
        bases = (flipout.example_weights(layer)["weight"] - layer.weight).abs()
    for n in range(7):
        for m in range(n):
            shares_a_base = (n + 1) // size == (m + 1) // size
            assert torch.allclose(bases[n], bases[m], rtol=1e-9) == shares_a_base


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
def test_antithetic_negates_every_perturbation(scheme: Any) -> None:
    layer = flipout.nn.Linear(3, 4, distribution=flipout.Gaussian(0.3), scheme=scheme, where="*").double()
    seen = []
    for antithetic in (False, True):
        with flipout.hold(layer, seed=1, antithetic=antithetic):
            layer(tensor(5, 3))
            seen.append(flipout.example_weights(layer))
    for name in ("weight", "bias"):
        mean = getattr(layer, name)
        equal([seen[0][name] - mean], [mean - seen[1][name]])


@pytest.mark.parametrize("scheme", ["shared", "independent"])
def test_an_antithetic_draw_of_an_asymmetric_distribution_is_refused(scheme: SchemeName) -> None:
    layer = flipout.nn.Linear(3, 4, distribution=flipout.DropConnect(0.3), scheme=scheme)
    with pytest.raises(flipout.errors.AsymmetricDistribution), flipout.hold(layer, antithetic=True):
        layer(torch.randn(5, 3))


def test_made_by_hand_equals_converted() -> None:
    layer = flipout.nn.Linear(3, 4, distribution=flipout.Gaussian(0.3), where="*").double()
    converted = nn.Linear(3, 4).double()
    converted.load_state_dict(layer.state_dict())
    flipout.perturb(converted, flipout.Gaussian(0.3), where="*")
    x = tensor(5, 3)
    with flipout.hold(layer, seed=1), flipout.hold(converted, seed=1):
        assert torch.equal(layer(x), converted(x))


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 16), (torch.bfloat16, 4), (torch.float16, 4)])
def test_low_precision(scheme: Any, dtype: torch.dtype, error: float) -> None:
    low = flipout.nn.Linear(64, 32, distribution=flipout.Gaussian(0.1), scheme=scheme, where="*").to(dtype)
    exact = copy.deepcopy(low).double()
    x = torch.randn(9, 64).to(dtype)
    with flipout.hold(low, seed=3), flipout.hold(exact, seed=3):
        y, truth = low(x), exact(x.double())
        weights = flipout.example_weights(exact)
    size = [exact.get_parameter(name).abs() + (w - exact.get_parameter(name)).abs() for name, w in weights.items()]
    bound = torch.stack([F.linear(row, w, b) for row, w, b in zip(x.double().abs(), *size, strict=True)])
    assert y.dtype == dtype
    assert ((y.double() - truth).abs() <= error * torch.finfo(dtype).eps * bound).all()


@pytest.mark.parametrize("distribution", [flipout.MeanField(std=0.3), flipout.MultiplicativeGaussian(0.5)])
@pytest.mark.parametrize("scheme", [flipout.Flipout(), flipout.Flipout(group=2)])
def test_double_backward(distribution: flipout.Distribution, scheme: flipout.Scheme) -> None:
    layer = flipout.nn.Linear(2, 3, distribution=distribution, scheme=scheme, where="*").double()
    names, values = zip(*layer.named_parameters(), strict=True)

    def f(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    with flipout.hold(layer, first=1):
        inputs = (tensor(3, 2, 2), *values)
        assert torch.autograd.gradcheck(f, inputs)
        assert torch.autograd.gradgradcheck(f, inputs)


def test_local_reparameterisation_of_tokens_is_refused() -> None:
    layer = flipout.nn.Linear(3, 4, distribution=flipout.Gaussian(0.3), scheme="local_reparam")
    assert layer(torch.randn(5, 3)).shape == (5, 4)
    with pytest.raises(flipout.errors.SampledPerPosition):
        layer(torch.randn(5, 2, 3))
    with flipout.using(layer, scheme=flipout.LocalReparam(per_position=True)):
        assert layer(torch.randn(5, 2, 3)).isfinite().all()
