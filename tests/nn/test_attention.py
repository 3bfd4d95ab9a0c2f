"""Multi-head attention equals a loop over examples."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.oracles import Case, Draws, check, draws, offsets, tensor

HEADS, WIDTH = 2, 4


def mask_of(kind: str, *shape: int) -> Tensor | None:
    """Return a mask that hides some keys, but never the first."""
    if kind == "none":
        return None
    hidden = torch.rand(shape) < 0.5
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    # Not -inf, which has no gradient to compare. torch itself turns bools into -inf.
    return torch.randn(shape, dtype=torch.float64).masked_fill(hidden, -4.0).requires_grad_()


def attend(same: str, **options: Any) -> Any:
    """Return a call of attention whose inputs are one object or not: torch recognises self-attention by identity."""

    def call(f: Any, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, mask: Tensor | None) -> Any:
        k, v = (q, q) if same == "self" else (k, k) if same == "key is value" else (k, v)
        mask = mask.flatten(0, 1) if mask is not None and mask.dim() == 4 else mask
        return f(q, k, v, key_padding_mask=padding, attn_mask=mask, **options)

    return call


@st.composite
def attentions(draw: Any, rows: int) -> Case:
    same = draw(st.sampled_from(["self", "key is value", "cross"]))
    batch_first, bias = draw(st.booleans()), draw(st.booleans())
    kdim = draw(st.sampled_from([None, 3])) if same != "self" else None
    vdim = kdim if same != "cross" else draw(st.sampled_from([None, 5]))
    extra_keys = {"add_bias_kv": draw(st.booleans()), "add_zero_attn": draw(st.booleans())}
    module = nn.MultiheadAttention(WIDTH, HEADS, 0.0, bias, kdim=kdim, vdim=vdim, batch_first=batch_first, **extra_keys)
    where = draw(st.sampled_from([None, ["in_proj_*", "?_proj_weight", "out_proj.*"], "out_proj.weight"]))
    if isinstance(where, list):
        names = [name for name, _ in module.named_parameters()]
        where = [name for name in names if name not in ("bias_k", "bias_v")]

    options = {"need_weights": draw(st.booleans()), "average_attn_weights": draw(st.booleans())}
    length, kind = draw(st.integers(1, 3)), draw(st.sampled_from(["none", "bool", "float"]))
    source = length if same == "self" else draw(st.integers(1, 3))
    widths = ((length, WIDTH), (source, kdim or WIDTH), (source, vdim or WIDTH))
    padded, per_head = kind if draw(st.booleans()) else "none", draw(st.booleans())
    if rows == 1 and draw(st.integers(0, 5)) == 0:
        mask = mask_of(kind, *([HEADS] if per_head else []), length, source)
        inputs = (*(tensor(*shape) for shape in widths), mask_of(padded, source), mask)
        return Case(module, inputs, (None,) * 5, (), attend(same, **options), where)
    count, dim = rows * draw(st.integers(1, 4)), 0 if batch_first else 1
    mask = mask_of(kind, *([count, HEADS] if per_head else []), length, source)
    shapes = [(count, size, width) if batch_first else (size, count, width) for size, width in widths]
    padding = mask_of(padded, count, source)
    inputs = (*(tensor(*shape) for shape in shapes), padding, mask)
    dims = (dim, dim, dim, None if padding is None else 0, 0 if mask is not None and per_head else None)
    return Case(module, inputs, dims, (dim, 0), attend(same, **options), where)


@settings(max_examples=120)
@given(data=st.data(), draw=draws, offset=offsets)
def test_attention(data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(attentions(draw.rows)), draw, offset)


@pytest.mark.parametrize("need_weights", [True, False])
def test_causal(need_weights: bool) -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    call = attend("self", need_weights=need_weights, is_causal=True)
    inputs = (tensor(4, 3, WIDTH), None, None, None, causal)
    check(Case(module, inputs, (0, None, None, None, None), (0, 0), call), Draws(first=1), 2)


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_of_the_attention(need_weights: bool) -> None:
    """Dropout comes from torch's generator and is fresh for each call, also under a held draw."""
    layer = flipout.nn.MultiheadAttention(WIDTH, HEADS, 0.5, distribution=flipout.Gaussian(0.3)).double()
    x = tensor(3, 5, WIDTH)
    with flipout.hold(layer):
        first, second = (layer(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert not torch.equal(first, second)
        layer.eval()
        first, second = (layer(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(first, second)


def test_a_single_example_may_have_a_mask_for_each_head() -> None:
    layer = flipout.nn.MultiheadAttention(WIDTH, HEADS, distribution=flipout.Gaussian(0.3))
    x, mask = torch.randn(3, WIDTH), torch.zeros(HEADS, 3, 3, dtype=torch.bool)
    with flipout.hold(layer, seed=1):
        single, batch = layer(x, x, x, attn_mask=mask)[0], layer(*[x[:, None]] * 3, attn_mask=mask)[0]
    torch.testing.assert_close(single, batch[:, 0])


def test_bad_inputs_are_named() -> None:
    layer = flipout.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, distribution=flipout.Gaussian(0.3))
    x, single = torch.randn(3, 2, WIDTH), torch.randn(1, 2, WIDTH)
    bad: list[tuple[tuple, dict[str, Any]]] = [
        ((single, x, x), {}),
        ((x, x, torch.randn(3, 3, WIDTH)), {}),
        ((x, x.double(), x.double()), {}),
        ((x, x, x[0]), {}),
        ((x, x, torch.randn(3, 2, WIDTH + 1)), {}),
        ((x, x, x), {"attn_mask": torch.zeros(2, 2, dtype=torch.int64)}),
        ((x, x, x), {"attn_mask": torch.zeros(3, 2)}),
        ((x, x, x), {"key_padding_mask": torch.zeros(2, 3)}),
        ((x, x, x), {"is_causal": True}),
    ]
    for args, options in bad:
        with pytest.raises(flipout.errors.InvalidInput, match="MultiheadAttention"):
            layer(*args, **options)


def test_local_reparameterisation_of_tokens_is_refused() -> None:
    layer = flipout.nn.MultiheadAttention(WIDTH, HEADS, distribution=flipout.Gaussian(0.3), scheme="local_reparam")
    token, x = torch.randn(1, 4, WIDTH), torch.randn(3, 4, WIDTH)
    assert layer(token, token, token)[0].isfinite().all()
    with pytest.raises(flipout.errors.SampledPerPosition):
        layer(x, x, x)
    with flipout.using(layer, scheme=flipout.LocalReparam(per_position=True)):
        assert layer(x, x, x)[0].isfinite().all()


def test_tensors_in_the_other_layout_are_refused() -> None:
    for first, fix in ((False, True), (True, False)):
        layer = flipout.nn.MultiheadAttention(WIDTH, HEADS, batch_first=first, distribution=flipout.Gaussian(0.3))
        query, key = (torch.randn((2, n, WIDTH) if fix else (n, 2, WIDTH)) for n in (5, 7))
        with pytest.raises(
            errors.InvalidInput,
            match=rf"the same batch size, in dimension {int(fix)} .* make it with batch_first={fix}",
        ):
            layer(query, key, key)


def test_tensors_in_the_other_layout_after_a_linear_layer_are_refused() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.attention = nn.Linear(WIDTH, WIDTH), nn.MultiheadAttention(WIDTH, HEADS)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            return self.attention(x, x, x)[0]

    with pytest.raises(
        errors.ExampleCount, match=r"has 5 examples, but this draw has 2 .*attention \(Multi.*batch_first=True"
    ):
        flipout.perturb(Block(), flipout.Gaussian(0.3))(torch.randn(2, 5, WIDTH))
