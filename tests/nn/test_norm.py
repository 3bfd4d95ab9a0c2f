"""Norm layers with noise on scale and shift equal a loop over examples."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor

sizes = st.integers(1, 3)
BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def randomise(module: nn.Module) -> nn.Module:
    """Draw the affine Parameters at random, instead of 1 and 0."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def selections(module: nn.Module) -> st.SearchStrategy[str]:
    return st.sampled_from(["*", *(name for name, _ in module.named_parameters())])


@st.composite
def last_norms(draw: Any, rows: int) -> Case:
    shape = draw(st.lists(st.integers(2, 3), min_size=1, max_size=2))
    if draw(st.booleans()):
        module = nn.LayerNorm(shape, bias=draw(st.booleans()))
    else:
        module = nn.RMSNorm(shape, eps=draw(st.sampled_from([None, 1e-5])))
    leading = draw(st.lists(sizes, max_size=2))
    batch_dim = draw(st.integers(0, len(leading)))
    where = draw(selections(randomise(module)))
    if rows == 1 and draw(st.integers(0, 5)) == 0:
        x = tensor(*leading[:batch_dim], *shape)
        return Case(module, (x,), (None,), where=where, batch_dim=batch_dim)
    leading.insert(batch_dim, rows * draw(st.integers(1, 4)))
    x = tensor(*leading, *shape)
    return Case(module, (x,), (batch_dim,), (batch_dim,), where=where, batch_dim=batch_dim)


@st.composite
def group_norms(draw: Any, rows: int) -> Case:
    groups = draw(st.integers(1, 2))
    module = randomise(nn.GroupNorm(groups, groups * 2))
    x = tensor(rows * draw(st.integers(1, 4)), groups * 2, *draw(st.lists(sizes, max_size=3)))
    return Case(module, (x,), where=draw(selections(module)))


@st.composite
def batch_norms(draw: Any, rows: int) -> Case:
    kind = draw(st.sampled_from(BATCH))
    momentum, track = draw(st.sampled_from([0.1, None])), draw(st.booleans())
    module = randomise(kind(2, momentum=momentum, track_running_stats=track))
    spatial = [draw(sizes) for _ in range(BATCH.index(kind) + 1)]
    x = tensor(rows * draw(st.integers(2, 4)), 2, *(spatial if len(spatial) > 1 or draw(st.booleans()) else []))
    return Case(module, (x,), where=draw(selections(module)), coupled=True)


@pytest.mark.parametrize("norms", [last_norms, group_norms, batch_norms])
@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_norms(norms: Any, data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(norms(draw.rows)), draw, offset)


class EvalBatchNorm(nn.Module):
    """BatchNorm in eval mode, where rows do not affect each other, inside a module in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        randomise(self.norm)
        for statistic in (self.norm.running_mean, self.norm.running_var):
            assert statistic is not None
            nn.init.uniform_(statistic, 0.5, 2.0)

    def train(self, mode: bool = True) -> "EvalBatchNorm":
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


@settings(max_examples=16)
@given(draw=draws, offset=offsets)
def test_running_statistics_are_used_in_eval_mode(draw: Draws, offset: int) -> None:
    check(Case(EvalBatchNorm().train(), (tensor(draw.rows * 4, 3, 2, 2),), where="*"), draw, offset)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_updated_as_in_torch(momentum: float | None) -> None:
    plain = nn.BatchNorm1d(3, momentum=momentum).double()
    layer = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3), where="*")
    x = tensor(3, 4, 3)
    for batch in x:
        plain(batch)
        layer(batch)
    equal(layer.buffers(), plain.buffers())
    layer.eval()
    with flipout.sampling(layer):
        layer(x[0])
    equal(layer.buffers(), plain.buffers())


def test_an_unbatched_input_is_one_example() -> None:
    layer = flipout.nn.LayerNorm(5, distribution=flipout.Gaussian(0.3), where="*")
    with flipout.hold(layer):
        assert layer(torch.randn(5)).shape == (5,)
        assert flipout.example_weights(layer)["weight"].shape == (1, 5)


@pytest.mark.parametrize("make", [lambda: nn.LayerNorm(4), lambda: nn.GroupNorm(2, 4), lambda: nn.BatchNorm1d(4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [True, False])
def test_parameters_in_float32_stay_exact(make: Any, dtype: torch.dtype, autocast: bool) -> None:
    """With autocast or half-precision input, torch's norms round their output but not their Parameters."""
    plain = randomise(make())
    layer = flipout.perturb(copy.deepcopy(plain), flipout.Gaussian(0.3), where="*")
    exact = copy.deepcopy(layer).double()
    x = torch.randn(6, 4).to(dtype)
    with flipout.hold(layer, seed=3), flipout.hold(exact, seed=3):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y, mean = layer(x), plain(x)
        truth = exact(x.double())
    assert y.dtype == mean.dtype
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), truth, rtol=error, atol=4 * error)


def test_bad_shapes_are_named() -> None:
    noise: Any = {"distribution": flipout.Gaussian(0.3), "where": "*"}
    cases = [
        (flipout.nn.LayerNorm(5, **noise), (3, 4)),
        (flipout.nn.RMSNorm((2, 5), **noise), (3, 5)),
        (flipout.nn.GroupNorm(2, 4, **noise), (3, 6, 2)),
        (flipout.nn.BatchNorm1d(4, track_running_stats=False, **noise), (3, 1)),
    ]
    for layer, shape in cases:
        with pytest.raises(flipout.errors.InvalidInput, match=type(layer).__name__):
            layer(torch.randn(shape))
