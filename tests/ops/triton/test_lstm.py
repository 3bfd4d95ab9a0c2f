"""The LSTM by kernels computes what the definition does, with its gradients, in every dtype."""

import copy
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import flipout
from flipout.backend import using
from flipout.errors import BackendUnavailable
from flipout.ops.base import Flipped, Straight
from flipout.ops.linear import Linear
from flipout.ops.recurrent import LSTM, Scan
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
NAMES = ("x", "h", "c", "mean", "delta", "bias")


def operands(count: int, steps: int, width: int, biased: bool, seed: int = 0, lengths: bool = False) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(steps + 1, (count,), generator=generator)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "x": normal(count, steps, 4 * width),
        "h": normal(count, width),
        "c": normal(count, width),
        "mean": normal(4 * width, width) / width**0.5,
        "delta": normal(4 * width, width) / width**0.5,
        "bias": normal(4 * width) if biased else None,
        "r": normal(count, 4 * width).sign(),
        "s": normal(count, width).sign(),
        "alive": (torch.arange(steps).unsqueeze(1) < ends).unsqueeze(2) if lengths else None,
    }


def of_one_weight(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "delta": None, "r": None, "s": None}


def results(
    given: dict[str, Any], dtype: torch.dtype, backend: str, reverse: bool, needs: tuple[str, ...] = NAMES
) -> list[Tensor]:
    """Outputs, states and gradients, in double precision on the CPU."""
    device = DEVICE if backend == "triton" else torch.device("cpu")
    kinds = {"c": torch.promote_types(dtype, torch.float32), "alive": torch.bool}
    own: dict[str, Any] = {
        name: None if one is None else one.to(device, kinds.get(name, dtype)) for name, one in given.items()
    }
    leaves = [own[name].requires_grad_() for name in needs if own[name] is not None]
    op = Linear(own["mean"].shape[1], own["mean"].shape[0])
    product: Any = Straight(op, own["mean"], own["bias"])
    if own["delta"] is not None:
        product = Flipped(op, op, own["mean"], own["delta"], own["r"], own["s"], own["bias"])
    with using(backend):  # pyright: ignore[reportArgumentType]
        y, (h, c) = Scan(LSTM(), product, reverse=reverse)(own["x"], (own["h"], own["c"]), own["alive"])
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
        loss = (y.double() * weights).sum() + h.double().square().sum() + (c.double() * weights[0]).sum()
        made = [y, h, c, *torch.autograd.grad(loss, leaves)] if leaves else [y, h, c]
    return [one.detach().double().cpu() for one in made]


def distance(made: Tensor, exact: Tensor) -> float:
    return float((made - exact).norm() / exact.norm().clamp_min(1e-9))


def assert_as_close(given: dict[str, Any], dtype: torch.dtype, reverse: bool, needs: tuple[str, ...] = NAMES) -> None:
    """No further from double precision than twice what eager code in that dtype is, or than a few of its roundings."""
    exact = results(given, torch.float64, "eager", reverse, needs)
    eager = results(given, dtype, "eager", reverse, needs)
    made = results(given, dtype, "triton", reverse, needs)
    assert len(made) == len(exact)
    for mine, theirs, truth in zip(made, eager, exact, strict=True):
        assert distance(mine, truth) <= 2 * distance(theirs, truth) + 4 * torch.finfo(dtype).eps


@settings(max_examples=12)
@given(
    st.integers(1, 20) | st.sampled_from([64, 65, 70]),
    st.integers(1, 4),
    st.integers(1, 40) | st.sampled_from([63, 64, 130]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.integers(0, 100),
    st.booleans(),
)
def test_any_shape(count, steps, width, biased, reverse, dtype, seed, lengths) -> None:
    assert_as_close(operands(count, steps, width, biased, seed, lengths), dtype, reverse)


@settings(max_examples=8)
@given(
    st.integers(1, 20) | st.just(64),
    st.integers(1, 4),
    st.integers(1, 40) | st.sampled_from([63, 64, 130]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.booleans(),
)
def test_any_shape_under_one_weight(count, steps, width, biased, reverse, dtype, lengths) -> None:
    assert_as_close(of_one_weight(operands(count, steps, width, biased, 0, lengths)), dtype, reverse)


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gates_that_are_nearly_open(count: int, dtype: torch.dtype) -> None:
    given = operands(count, 3, 17, False)
    given["x"][..., 17:34] += 7  # the forget gate's 1 − f is below what half precision tells from 1
    assert_as_close(given, dtype, False)


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-6])
def test_small_numbers_are_as_exact_as_large_ones(size: float) -> None:
    given = operands(4, 3, 17, True)
    for name in ("x", "h", "c", "bias"):
        given[name] *= size
    assert_as_close(given, torch.float32, False)
    assert_as_close(of_one_weight(given), torch.float32, False)


@pytest.mark.parametrize("needs", [("mean",), ("x", "h", "c"), ("bias",), ()], ids=str)
def test_only_the_gradients_that_are_needed_under_one_weight(needs: tuple[str, ...]) -> None:
    assert_as_close(of_one_weight(operands(4, 3, 17, True)), torch.float32, False, needs)


@pytest.mark.parametrize("scheme", ["shared", "flipout"])
@pytest.mark.parametrize("where", ["weight_hh*", "weight_ih*", "weight_*"])
def test_a_layer_whose_recurrent_weight_all_sequences_share(scheme, where, monkeypatch) -> None:
    """Under `shared`, or without noise on it. In the interpreter one case has two layers, which take a while there."""
    layers = 2 if DEVICE.type == "cuda" or (scheme, where) == ("shared", "weight_hh*") else 1
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    served: list[str] = []
    fused = import_module("flipout.ops.triton.lstm").FusedLSTM
    kernel = fused.apply
    monkeypatch.setattr(fused, "apply", lambda *given: served.append("kernel") or kernel(*given))
    torch.manual_seed(0)
    plain = nn.LSTM(6, 10, layers, bidirectional=True).to(DEVICE)
    model = flipout.perturb(plain, flipout.Gaussian(0.1), scheme=scheme, where=where)
    x, found = torch.randn(4, 3, 6, device=DEVICE, requires_grad=True), []
    for backend in ("triton", "eager"):
        with using(backend), flipout.hold(model, 5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(x)
            (y.sum() + h.square().sum() + c.sum()).backward()
        found.append([y, h, c, x.grad, *(parameter.grad for parameter in model.parameters())])
        x.grad = None
        model.zero_grad()
    for made, expected in zip(*found, strict=True):
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
    assert (len(served) > 0) == (scheme == "shared" or where == "weight_ih*")


@pytest.mark.parametrize("count", [5, 70])  # a few sequences, and many
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reverse", [False, True])
def test_both_ways_in_every_dtype(count: int, dtype: torch.dtype, reverse: bool) -> None:
    assert_as_close(operands(count, 3, 33, True), dtype, reverse)


@pytest.mark.parametrize("count", [5, 70])
@pytest.mark.parametrize("reverse", [False, True])
def test_sequences_that_end_early_keep_their_state(count: int, reverse: bool) -> None:
    assert_as_close(operands(count, 4, 20, True, lengths=True), torch.float32, reverse)


@pytest.mark.parametrize("needs", [("mean",), ("delta",), ("x", "h", "c"), ("bias",), ()], ids=str)
def test_only_the_gradients_that_are_needed(needs: tuple[str, ...]) -> None:
    assert_as_close(operands(6, 2, 12, True), torch.float32, False, needs)


def test_few_and_many_sequences_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    given = operands(9, 3, 20, True)
    few = results(given, torch.float32, "triton", False)
    monkeypatch.setattr("flipout.ops.triton.lstm._FEW", 0)
    for mine, theirs in zip(few, results(given, torch.float32, "triton", False), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("narrow", [2**30, 0])
def test_either_width_of_index(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._NARROW", narrow)
    for count in (5, 66):
        assert_as_close(operands(count, 2, 9, True), torch.float32, True)


@pytest.mark.parametrize(("batch_first", "where"), [(False, "weight_hh*"), (True, "weight_*")])
def test_a_layer_of_layers_and_directions(batch_first: bool, where: str) -> None:
    layer = nn.LSTM(7, 10, num_layers=2, bidirectional=True, batch_first=batch_first)
    here = flipout.perturb(layer, flipout.MeanField(std=0.3), where=where)
    there = copy.deepcopy(here).to(DEVICE)
    x = torch.randn(*((5, 3, 7) if batch_first else (3, 5, 7)))
    made = []
    for model, backend in ((here, "eager"), (there, "triton")):
        own = x.to(next(model.parameters()).device, copy=True).requires_grad_()
        with using(backend), flipout.hold(model, seed=5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(own)
            (y.square().sum() + h.sum() + c.square().sum()).backward()
        grads = [own.grad, *(parameter.grad for parameter in model.parameters())]
        made.append([one.detach().cpu() for one in (y, h, c, *grads) if one is not None])
    for mine, theirs in zip(*made, strict=True):
        torch.testing.assert_close(theirs, mine, rtol=2e-4, atol=2e-5)


def test_packed_sequences_of_a_layer() -> None:
    layer = flipout.perturb(nn.LSTM(5, 8, bidirectional=True), flipout.MultiplicativeGaussian(0.5))
    x, lengths = torch.randn(6, 4, 5), torch.tensor([2, 6, 1, 4])
    made = []
    for model, backend in ((layer, "eager"), (copy.deepcopy(layer).to(DEVICE), "triton")):
        packed = pack_padded_sequence(x.to(next(model.parameters()).device), lengths, enforce_sorted=False)
        with using(backend), flipout.hold(model, seed=5):  # pyright: ignore[reportArgumentType]
            y, (h, c) = model(packed)
            (y.data.square().sum() + h.sum() + c.square().sum()).backward()
        grads = [parameter.grad for parameter in model.parameters()]
        made.append([one.detach().cpu() for one in (y.data, h, c, *grads) if one is not None])
    for mine, theirs in zip(*made, strict=True):
        torch.testing.assert_close(theirs, mine, rtol=2e-4, atol=2e-5)


def test_backward_again_gives_the_same_and_leaves_what_was_kept() -> None:
    layer = flipout.perturb(nn.LSTM(4, 6), flipout.MultiplicativeGaussian(0.5), where="weight_hh*").to(DEVICE)
    with using("triton"):
        y, _ = layer(torch.randn(3, 5, 4, device=DEVICE))
        first, again = (
            torch.autograd.grad(y.square().sum(), list(layer.parameters()), retain_graph=True) for _ in range(2)
        )
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("count", [5, 70])
def test_nothing_but_the_sequences_of_h_c_and_gates_is_kept(count: int) -> None:
    """Beside the weights, the first state and one byte of signs for each sequence and unit."""
    steps, width = 7, 12
    given = operands(count, steps, width, True)
    own = {name: one.float().to(DEVICE) for name, one in given.items() if one is not None}
    own["mean"].requires_grad_()
    op = Linear(width, 4 * width)
    product = Flipped(op, op, own["mean"], own["delta"], own["r"], own["s"], own["bias"])
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with using("triton"), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y, _ = Scan(LSTM(), product)(own["x"], (own["h"], own["c"]))
    sequences = steps * count * (1 + 4) * width + (steps + 1) * count * width
    assert y.requires_grad
    assert sum(kept.values()) == 4 * (sequences + count * width + 2 * 4 * width * width) + count * width


def test_double_precision_has_no_kernel_and_says_so() -> None:
    layer = flipout.perturb(nn.LSTM(4, 6), flipout.MultiplicativeGaussian(0.5)).to(DEVICE).double()
    with using("triton"), pytest.raises(BackendUnavailable, match="'lstm'"):
        layer(torch.randn(3, 5, 4, dtype=torch.float64, device=DEVICE))


@pytest.mark.parametrize("of", [dict, of_one_weight], ids=["flipout", "one weight"])
def test_a_bias_that_lies_in_memory_with_gaps(of: Any) -> None:
    given = {
        name: one if one is None else one.to(DEVICE, torch.float32) for name, one in operands(3, 2, 5, True).items()
    }
    own = of(given)
    made = []
    for bias in (own["bias"], own["bias"].repeat_interleave(2)[::2]):
        op: Any = Linear(5, 20)
        product: Any = Straight(op, own["mean"], bias)
        if own["delta"] is not None:
            product = Flipped(op, op, own["mean"], own["delta"], own["r"], own["s"], bias)
        with torch.no_grad(), using("triton"):
            made.append(Scan(LSTM(), product)(own["x"], (own["h"], own["c"]))[0])
    assert torch.equal(*made)
