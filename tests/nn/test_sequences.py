"""Recurrent layers against the per-example loop, over every form in which they take sequences."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, unpack_sequence

import flipout
from flipout import errors
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor
from tests.statistics import assert_probability

NOISE = flipout.Gaussian(0.3)
KINDS = ("LSTM", "GRU", "RNN")
SCHEMES = ("shared", "flipout", flipout.Flipout(group=2), "independent")
sizes = st.integers(1, 3)


@st.composite
def modules(draw: Any) -> tuple[Any, Any]:
    """A layer with drawn options, and `where` to perturb it."""
    kind, hidden = draw(st.sampled_from(KINDS)), draw(st.integers(2, 3))
    flags = {name: draw(st.booleans()) for name in ("bidirectional", "bias", "batch_first")}
    if kind == "LSTM":
        flags["proj_size"] = draw(st.sampled_from([0, 0, 1]))
    if kind == "RNN":
        flags["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    module = getattr(nn, kind)(draw(sizes), hidden, draw(sizes), **flags)
    globs = [None, "*", "*weight_hh*", "*weight_ih*", "*_l0*", *(["*bias*"] if module.bias else [])]
    return module, draw(st.sampled_from(globs))


def states(module: Any, *rows: int) -> tuple[Tensor, ...]:
    """Return h, and for an LSTM c too."""
    widths = (module.proj_size or module.hidden_size, module.hidden_size)[: 1 + (module.mode == "LSTM")]
    return tuple(tensor(module.num_layers * (1 + module.bidirectional), *rows, width) for width in widths)


def call(f: Any, x: Any, *state: Tensor) -> tuple[Any, ...]:
    """The output and the last states, one after the other."""
    hx = [state if len(state) == 2 else state[0]] if state else []
    y, last = f(x, *hx)
    return y, *(last if isinstance(last, tuple) else (last,))


def packed(enforce_sorted: bool, longest: int) -> Any:
    """A call with a PackedSequence; the loop calls torch's module with each sequence alone, at its own length."""

    def call_packed(f: Any, sequences: list[Tensor], *state: Tensor) -> tuple[Tensor, ...]:
        if not isinstance(f, nn.Module):
            y, *last = call(f, sequences[0], *(part.squeeze(1) for part in state))
            return F.pad(y, (0, 0, 0, longest - len(y))).unsqueeze(0), *(part.unsqueeze(1) for part in last)
        packed_input = pack_sequence(sequences, enforce_sorted)
        packed_output, *last = call(f, packed_input, *state)
        assert torch.equal(packed_output.batch_sizes, packed_input.batch_sizes)
        assert packed_output.sorted_indices is packed_input.sorted_indices
        assert packed_output.unsorted_indices is packed_input.unsorted_indices
        return pad_packed_sequence(packed_output, batch_first=True, total_length=longest)[0], *last

    return call_packed


@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_batches(data: st.DataObject, draw: Draws, offset: int) -> None:
    module, where = data.draw(modules())
    rows, time, dim = draw.rows * data.draw(sizes), data.draw(sizes), 0 if module.batch_first else 1
    x = tensor(*((rows, time) if module.batch_first else (time, rows)), module.input_size)
    state = states(module, rows) if data.draw(st.booleans()) else ()
    places = (dim, 1, 1)
    check(Case(module, (x, *state), places[: 1 + len(state)], places, call, where), draw, offset)


@settings(max_examples=15)
@given(data=st.data(), first=st.integers(0, 300), offset=offsets)
def test_unbatched(data: st.DataObject, first: int, offset: int) -> None:
    module, where = data.draw(modules())
    x = tensor(data.draw(sizes), module.input_size)
    state = states(module) if data.draw(st.booleans()) else ()
    check(Case(module, (x, *state), (None,) * (1 + len(state)), (), call, where), Draws(first), offset)


@settings(max_examples=40)
@given(data=st.data(), draw=draws, offset=offsets)
def test_packed(data: st.DataObject, draw: Draws, offset: int) -> None:
    module, where = data.draw(modules())
    rows = draw.rows * data.draw(sizes)
    lengths, enforce_sorted = data.draw(st.lists(st.integers(1, 4), min_size=rows, max_size=rows)), False
    if data.draw(st.booleans()):
        lengths, enforce_sorted = sorted(lengths, reverse=True), True
    sequences = [tensor(length, module.input_size) for length in lengths]
    state = states(module, rows) if data.draw(st.booleans()) else ()
    places = (0, 1, 1)
    run_packed = packed(enforce_sorted, max(lengths))
    check(Case(module, (sequences, *state), places[: 1 + len(state)], places, run_packed, where), draw, offset)


def made_by_hand(kind: str, *sizes: int, scheme: Any = "flipout", **options: Any) -> Any:
    return getattr(flipout.nn, kind)(*sizes, distribution=NOISE, scheme=scheme, **options).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES[1:], ids=str)
def test_examples_are_the_sequences_as_given_however_they_are_sorted(kind: str, scheme: Any) -> None:
    layer = made_by_hand(kind, 3, 4, scheme=scheme, where="*")
    x = tensor(4, 5, 3)
    with flipout.hold(layer, seed=1):
        whole = layer(x.transpose(0, 1))[0].transpose(0, 1)
        for lengths in ([5, 3, 2, 1], [1, 2, 3, 5], [2, 5, 2, 4]):
            packed_output, _ = layer(
                pack_sequence([row[:n] for row, n in zip(x, lengths, strict=True)], enforce_sorted=False)
            )
            equal(unpack_sequence(packed_output), [row[:n] for row, n in zip(whole, lengths, strict=True)])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_noise_of_the_input_weights_is_constant_over_time(scheme: Any) -> None:
    """With a constant input and no recurrence, every step has the same gates."""
    outputs, x = {}, torch.ones(6, 4, 3, dtype=torch.float64)
    for kind in KINDS:
        layer = made_by_hand(kind, 3, 2, scheme=scheme, where="*weight_ih*")
        nn.init.zeros_(layer.weight_hh_l0)
        with flipout.hold(layer, seed=1):
            outputs[kind] = [call(layer, x[:t]) for t in range(1, 7)]
    rnn, gru = outputs["RNN"][-1][0], outputs["GRU"][-1][0]
    equal([rnn], [rnn[:1].expand_as(rnn)])
    steps = torch.diff(gru, dim=0, prepend=torch.zeros_like(gru[:1]))  # h' = n + z (h - n)
    equal([steps[1:] / steps[:-1]], [(steps[1] / steps[0]).expand(5, 4, 2)])
    h, c = (torch.cat(parts) for parts in list(zip(*outputs["LSTM"], strict=True))[1:])
    steps = torch.diff(c, dim=0, prepend=torch.zeros_like(c[:1]))  # c' = f c + i g, h = o tanh(c)
    equal([steps[1:] / steps[:-1]], [(steps[1] / steps[0]).expand(5, 4, 2)])
    equal([h / c.tanh()], [(h / c.tanh())[:1].expand_as(h)])
    for y in (rnn, gru, h):
        assert torch.allclose(y[:, 0], y[:, 1]) == (scheme == "shared")


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_noise_of_the_recurrent_weights_is_constant_over_time(scheme: Any) -> None:
    """Without input and biases each step multiplies a positive state by the same number."""
    layer = made_by_hand("RNN", 1, 1, scheme=scheme, nonlinearity="relu", bias=False, where="weight_hh_l0")
    nn.init.zeros_(layer.weight_ih_l0)
    nn.init.constant_(layer.weight_hh_l0, 2.0)
    y, _ = layer(torch.zeros(5, 8, 1, dtype=torch.float64), torch.ones(1, 8, 1, dtype=torch.float64))
    equal([y[1:] / y[:-1]], [y[:1].expand(4, 8, 1)])
    assert len(y[0].unique()) == {"shared": 1, "flipout": 2, "independent": 8}.get(scheme, len(y[0].unique()))
    assert (len(y[0].unique()) > 1) == (scheme != "shared")


def test_each_parameter_has_its_own_signs() -> None:
    layer = flipout.nn.LSTM(4, 4, 2, bidirectional=True, distribution=flipout.Rademacher(0.1), where="*").double()
    with flipout.hold(layer, seed=1):
        layer(tensor(1, 200, 4))
        seen = {name: w - layer.get_parameter(name) for name, w in flipout.example_weights(layer).items()}
    square = {name: w for name, w in seen.items() if w.shape[1:] == (16, 4)}
    flips = {name: (w * w[:1]).sign() for name, w in square.items()}  # r_n r_0 (s_n s_0)ᵀ
    assert len(flips) == 6
    for name, flip in flips.items():
        assert torch.equal(flip * flip[:, :1, :1], flip[:, :, :1] * flip[:, :1])
        for other in flips.keys() - {name}:
            for first, second in ((flip[1:, 1], flips[other][1:, 1]), (flip[1:, :, 1], flips[other][1:, :, 1])):
                same = first[:, 0] * first[:, 1] == second[:, 0] * second[:, 1]
                assert_probability(int(same.sum()), len(same), 0.5)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_under_hold_are_one_long_sequence(kind: str, scheme: Any) -> None:
    layer = made_by_hand(kind, 3, 4, 2, scheme=scheme, where="*")
    x = tensor(6, 5, 3)
    with flipout.hold(layer):
        whole, *last = call(layer, x)
        first, *state = call(layer, x[:2])
        if scheme == "shared":  # one weight for all, however many they are
            equal([layer(x[:, 1:])[0]], [whole[:, 1:]])
        else:
            with pytest.raises(errors.ExampleCount, match=rf"{kind}: the input has 4 examples, but this draw has 5"):
                layer(x[:, 1:])
        rest, *state = call(layer, x[2:], *state)
    equal([torch.cat((first, rest)), *state], [whole, *last])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_outside_of_hold_draw_anew(kind: str, scheme: Any) -> None:
    layer = made_by_hand(kind, 3, 4, scheme=scheme)
    x = tensor(1, 5, 3)
    first, *state = call(layer, x)
    assert not (first == layer(x)[0]).any()
    assert not (call(layer, x, *state)[0] == call(layer, x, *state)[0]).any()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_dropout_between_layers(scheme: Any) -> None:
    """The second layer of this RNN gives its input back."""
    layer = made_by_hand("RNN", 3, 20, 2, scheme=scheme, nonlinearity="relu", dropout=0.3, where="weight_ih_l0")
    for name, parameter in layer.named_parameters():
        nn.init.zeros_(parameter) if name != "weight_ih_l0" else nn.init.constant_(parameter, 2.0)
    nn.init.eye_(layer.weight_ih_l1)
    x = torch.ones(50, 4, 3, dtype=torch.float64)
    with flipout.hold(layer, seed=1):
        once, again = layer(x)[0], layer(x)[0]
        assert not torch.equal(once, again)
        mean = layer.eval()(x)[0]
        assert torch.equal(mean, layer(x)[0])
        assert torch.equal(mean, mean[:1].expand_as(mean))
        kept = once != 0
        equal([once[kept]], [mean[kept] / 0.7])
    assert_probability(int((~kept).sum()), kept.numel(), 0.3)
    assert_probability(int((again == 0)[~kept].sum()), int((~kept).sum()), 0.3)
    with flipout.sampling(layer):
        assert (layer(x)[0] != 0).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_gives_an_empty_output(kind: str, scheme: Any) -> None:
    layer = made_by_hand(kind, 3, 4, 2, scheme=scheme, bidirectional=True, where="*")
    y, *last = call(layer, torch.zeros(5, 0, 3, dtype=torch.float64, requires_grad=True))
    assert y.shape == (5, 0, 8)
    assert all(part.shape == (4, 0, 4) for part in last)
    y.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in layer.parameters())


def bad_inputs(kind: str) -> list[tuple[str, Any, Any]]:
    """(message, input, hx) for a layer of 3 features and 4 units."""
    x, h, pair = torch.randn(5, 2, 3), torch.zeros(1, 2, 4), kind == "LSTM"
    shape = r"\[\(1, 2, 4\), \(1, 2, 4\)\]" if pair else r"\[\(1, 2, 4\)\]"
    both = (lambda part: (part, part)) if pair else (lambda part: part)
    wrong_hx: list[Any] = [both(h[:, :1]), both(h[0]), both(h.expand(2, 2, 4)), both(h[..., :3])]
    wrong_hx += [h, (h,), (h, h, h)] if pair else [(h, h), [h]]
    dtype = r"{} of dtype torch\.{}; expected torch\.float32"
    return [
        (r"input of shape \(5, 2, 4\); expected \(time, N, 3\), \(time, 3\)", torch.randn(5, 2, 4), None),
        (r"input of shape \(5, 4\)", pack_sequence([torch.randn(5, 4)]), None),
        (r"input of shape \(5, 2, 3, 3\)", torch.randn(5, 2, 3, 3), None),
        (r"input of shape \(3,\)", torch.randn(3), None),
        (r"input of shape \(0, 2, 3\): there is no time step", x[:0], None),
        (r"input of shape \(0, 3\): there is no time step", x[:0, 0], None),
        (dtype.format("input", "float64"), x.double(), None),
        (dtype.format("input", "int64"), x.long(), None),
        (dtype.format("hx", "float64"), x, both(h.double())),
        (r"hx of shapes .*1 sequence", x[:, 0], both(h)),
        *((rf"hx of shapes .* expected {shape}: .*2 sequence", x, hx) for hx in wrong_hx),
    ]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_inputs_are_named(kind: str, scheme: Any) -> None:
    model = flipout.perturb(nn.ModuleDict({"rnn": getattr(nn, kind)(3, 4)}), NOISE, scheme=scheme)
    with flipout.hold(model):
        for message, x, hx in bad_inputs(kind):
            with pytest.raises(errors.InvalidInput, match=rf"rnn \({kind}\): {message}"):
                model["rnn"](x, hx)
        assert model["rnn"](torch.randn(5, 7, 3))[0].shape == (5, 7, 4)  # refused calls counted no examples
    with pytest.raises(errors.InvalidInput, match=r"expected \(N, time, 3\)"):
        made_by_hand(kind, 3, 4, batch_first=True)(torch.randn(2, 5, 4))
