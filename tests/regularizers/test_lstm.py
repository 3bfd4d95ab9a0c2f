"""What all regularised LSTMs share with torch's own."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import flipout
from flipout.regularizers import RecurrentDropoutLSTM, RegularizedLSTM, VariationalLSTM, ZarembaLSTM, ZoneoutLSTM, _lstm
from tests.regularizers.loops import OPTIONS

KINDS: dict[str, tuple[type[RegularizedLSTM], dict[str, Any]]] = {
    "zaremba": (ZarembaLSTM, {"dropout": 0.5}),
    "variational": (VariationalLSTM, {"p_input": 0.35, "p_hidden": 0.2}),
    "recurrent": (RecurrentDropoutLSTM, {"p": 0.3}),
    "recurrent, per sequence": (RecurrentDropoutLSTM, {"p": 0.3, "per_step": False}),
    "recurrent, of states": (RecurrentDropoutLSTM, {"p": 0.3, "on": "state"}),
    "zoneout": (ZoneoutLSTM, {"zoneout_h": 0.05, "zoneout_c": 0.5}),
}
OFF = {ZarembaLSTM: {"dropout": 0}, VariationalLSTM: {"p_input": 0, "p_hidden": 0.0}}
OFF |= {RecurrentDropoutLSTM: {"p": 0.0}, ZoneoutLSTM: {"zoneout_h": 0.0, "zoneout_c": 0.0}}
NAMES = [(kind, name) for kind, names in OFF.items() for name in names]
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, *args: Any, **options: Any) -> RegularizedLSTM:
    layer, settings = KINDS[kind]
    return layer(*(args or (3, 4)), **settings, **options)


def plain_of(lstm: nn.LSTM, **options: Any) -> nn.LSTM:
    plain = nn.LSTM(lstm.input_size, lstm.hidden_size, **options).train(lstm.training)
    plain.load_state_dict(lstm.state_dict())
    return plain


def same(lstm: nn.LSTM, plain: nn.LSTM) -> None:
    """Bit for bit, with dense, packed and single sequences."""
    batch = torch.randn(4, 5, 3)
    packed = pack_sequence([torch.randn(length, 3) for length in (2, 4, 3)], enforce_sorted=False)
    for x in (batch, packed, batch[0]):
        (y, state), (expected, last) = lstm(x), plain(x)
        y, expected = (part if isinstance(part, torch.Tensor) else part.data for part in (y, expected))
        assert all(map(torch.equal, (y, *state), (expected, *last)))
        assert [part.shape for part in (y, *state)] == [part.shape for part in (expected, *last)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "zoneout"])
def test_eval_mode_is_torchs_own(kind: str, options: dict[str, Any]) -> None:
    lstm = make(kind, **options).eval()
    same(lstm, plain_of(lstm, **options))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", OFF)
def test_at_0_it_is_torchs_own(kind: type[RegularizedLSTM], options: dict[str, Any], training: bool) -> None:
    lstm = kind(3, 4, **OFF[kind], **options).train(training)
    same(lstm, plain_of(lstm, **options))


@every_kind
def test_state_dicts_load_both_ways(kind: str) -> None:
    options = {"num_layers": 2, "bidirectional": True, "proj_size": 2}
    lstm, plain = make(kind, **options), nn.LSTM(3, 4, **options)
    assert list(lstm.state_dict()) == list(plain.state_dict())
    lstm.load_state_dict(plain.state_dict())
    plain.load_state_dict(lstm.state_dict())
    assert [name for name, _ in lstm.named_parameters()] == [name for name, _ in plain.named_parameters()]


@every_kind
def test_the_generator_repeats_a_call(kind: str) -> None:
    lstm, x = make(kind, num_layers=2), torch.randn(5, 2, 3)
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(lstm(x)[0])
    assert torch.equal(*outputs)
    assert not torch.equal(outputs[0], lstm(x)[0])


@every_kind
def test_a_copy_keeps_the_rules(kind: str) -> None:
    lstm, x = make(kind), torch.randn(5, 2, 3)
    other = copy.deepcopy(lstm)
    torch.manual_seed(3)
    y = lstm(x)[0]
    torch.manual_seed(3)
    assert torch.equal(other(x)[0], y)


@every_kind
def test_gradients(kind: str) -> None:
    lstm = make(kind, 2, 2, num_layers=2, dtype=torch.float64)
    names, values = zip(*lstm.named_parameters(), strict=True)

    def f(x: torch.Tensor, *parameters: torch.Tensor) -> Any:
        torch.manual_seed(1)
        y, state = torch.func.functional_call(lstm, dict(zip(names, parameters, strict=True)), (x,))
        return y, *state

    x = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x, *values))


@every_kind
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("packed", [True, False])
def test_weight_gradients_collected_over_the_steps_are_those_of_each_step(
    kind: str, options: dict[str, Any], packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One product for the weight gradient of all steps, as on a GPU."""
    lstm = make(kind, 3, 4, dtype=torch.float64, **options)
    batch = 0 if lstm.batch_first else 1
    x = torch.randn(4, 4, 3, dtype=torch.float64)
    inputs: Any = pack_sequence([x.select(batch, n)[: n + 1] for n in range(4)], enforce_sorted=False) if packed else x
    found = []
    for collects in (False, True):
        monkeypatch.setattr(_lstm, "is_worthwhile", lambda x, collects=collects: collects)
        torch.manual_seed(1)
        y, state = lstm(inputs)
        lstm.zero_grad()
        (y.data.square().sum() + sum(part.sum() for part in state)).backward()
        found.append([y.data, *state, *(parameter.grad for parameter in lstm.parameters())])
    for collected, each in zip(*found, strict=True):
        torch.testing.assert_close(collected, each)


@every_kind
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("autocast", [True, False])
def test_low_precision(kind: str, packed: bool, autocast: bool) -> None:
    """bfloat16 stays near double precision under the same masks, and so does autocast."""
    exact = make(kind, 3, 8, num_layers=2, dtype=torch.float64)
    low = copy.deepcopy(exact).to(torch.float32 if autocast else torch.bfloat16)
    x: Any = torch.randn(6, 4, 3).bfloat16()
    results = []
    for lstm in (exact, low):
        converted = x.to(lstm.weight_ih_l0.dtype)
        inputs = (
            pack_sequence([converted[:, n][: n + 2] for n in range(4)], enforce_sorted=False) if packed else converted
        )
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast and lstm is low):
            y, state = lstm(inputs)
        results.append([part.double() for part in (y.data, *state)])
        assert len({part.dtype for part in (y.data, *state)}) == 1
    assert y.data.dtype == torch.bfloat16
    torch.testing.assert_close(*results, rtol=0.05, atol=0.03)


def test_c_adds_up_in_single_precision() -> None:
    """1000 small updates, each below the resolution of bfloat16 near their sum."""
    lstm = VariationalLSTM(1, 1, p_input=0.0, p_hidden=0.5)
    for name, value in lstm.named_parameters():  # i, f, g, o: only f's and g's biases matter
        nn.init.zeros_(value)
        if name == "bias_ih_l0":
            value.data[:3] = torch.tensor([0.0, 20.0, 0.001])
    c = lstm.bfloat16()(torch.zeros(1000, 1, 1, dtype=torch.bfloat16))[1][1]
    assert abs(c.item() - 0.5) < 0.01


@every_kind
def test_compiled_as_one_graph(kind: str) -> None:
    """torch asks to be told that a subclass of its LSTM may be traced."""
    lstm, x = make(kind), torch.randn(3, 2, 3)
    torch.manual_seed(1)
    expected = lstm(x)[0]
    torch.manual_seed(1)
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(torch.compile(lstm, fullgraph=True, backend="eager")(x)[0], expected)


@pytest.mark.parametrize(("kind", "name"), NAMES)
@pytest.mark.parametrize("p", [1, 1.5, -0.1, float("nan"), None, "0.5"])
def test_bad_probabilities(kind: type[RegularizedLSTM], name: str, p: Any) -> None:
    with pytest.raises(
        flipout.errors.InvalidArgument,
        match=rf"{kind.__name__}: {name}={p!r} given; expected a probability in \[0, 1\), such as {name}=0\.5",
    ):
        kind(3, 4, **{**OFF[kind], name: p})


def test_dropout_between_layers_beside_locked_masks_is_refused() -> None:
    with pytest.raises(
        flipout.errors.InvalidArgument, match=r"dropout=0\.3 given; p_input=0\.35 already drops .*dropout at 0"
    ):
        make("variational", num_layers=2, dropout=0.3)


@every_kind
@pytest.mark.parametrize("batch_first", [True, False])
def test_bad_input(kind: str, batch_first: bool) -> None:
    lstm = make(kind, num_layers=2, batch_first=batch_first)
    name = type(lstm).__name__
    layout = r"\(N, time, 3\)" if batch_first else r"\(time, N, 3\)"
    for x in (torch.randn(5, 2, 4), torch.randn(3), torch.randn(1, 5, 2, 3), torch.randn(0, 2, 3)):
        with pytest.raises(flipout.errors.InvalidInput, match=rf"{name}: input of shape .* expected {layout}"):
            lstm(x)
    with pytest.raises(
        flipout.errors.InvalidInput, match=rf"{name}: .*dtype torch\.float64; .*x\.to\(torch\.float32\)"
    ):
        lstm(torch.randn(5, 2, 3).double())
    h, c = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    x = torch.randn(2, 5, 3) if batch_first else torch.randn(5, 2, 3)
    for hx in ((h, c), (h[:, :2],), (h[:, :2], c[:1, :2]), (h[:, 0], c[:, 0])):
        with pytest.raises(
            flipout.errors.InvalidInput, match=rf"{name}: hx of shapes .*\(2, 2, 4\), \(2, 2, 4\).*hx=None"
        ):
            lstm(x, hx)


@every_kind
def test_noise_on_its_weights_is_refused(kind: str) -> None:
    lstm = make(kind)
    name = type(lstm).__name__
    model = nn.ModuleDict({"lstm": lstm, "decoder": nn.Linear(4, 3)})
    with pytest.raises(
        flipout.errors.UnknownParameter, match=rf"lstm\.weight_hh_l0 of a {name}, which no known layer type perturbs"
    ):
        flipout.perturb(model, flipout.Gaussian(0.1), where="*weight_hh*")
    with pytest.raises(flipout.errors.UnknownParameter, match=rf"{name}: perturb finds nothing to perturb"):
        flipout.perturb(lstm, flipout.Gaussian(0.1))
    with pytest.warns(flipout.errors.LeftPlain, match=rf"{name}: lstm\.weight_ih_l0"):
        flipout.perturb(model, flipout.Gaussian(0.1))
    assert model["lstm"] is lstm
    assert type(lstm) is KINDS[kind][0]
    assert isinstance(model["decoder"], flipout.nn.Linear)


def test_what_they_say_of_themselves() -> None:
    assert str(make("zaremba", num_layers=2)) == "ZarembaLSTM(3, 4, num_layers=2, dropout=0.5)"
    assert str(make("variational")) == "VariationalLSTM(3, 4, p_input=0.35, p_hidden=0.2)"
    assert str(make("recurrent")) == "RecurrentDropoutLSTM(3, 4, p=0.3, per_step=True, on=update)"
    assert str(make("zoneout")) == "ZoneoutLSTM(3, 4, zoneout_h=0.05, zoneout_c=0.5)"
