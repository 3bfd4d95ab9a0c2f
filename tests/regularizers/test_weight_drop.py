"""The weight-dropped LSTM (Merity et al., 2017) is DropConnect on the hidden-to-hidden weights, shared by a batch."""

import copy

import pytest
import torch
from torch import nn

import flipout
from tests.statistics import assert_probability


def weight_dropped(p: float, num_layers: int = 2) -> nn.LSTM:
    lstm = nn.LSTM(3, 20, num_layers).double()
    return flipout.perturb(lstm, flipout.DropConnect(p), scheme="shared", where="*weight_hh*")


@pytest.mark.parametrize("p", [0.5, 0.2])
def test_one_mask_for_all_sequences_and_time_steps(p: float) -> None:
    """The output is that of torch's LSTM under masked W_hh, scaled by 1 / (1 − p); nothing else is masked."""
    lstm = weight_dropped(p)
    x = torch.randn(6, 5, 3).double()
    with flipout.hold(lstm):
        y, (h, c) = lstm(x)
        seen = flipout.example_weights(lstm)
    plain = nn.LSTM(3, 20, 2).double()
    plain.load_state_dict({name: dropped[0] for name, dropped in seen.items()})
    expected, (last_h, last_c) = plain(x)
    torch.testing.assert_close([y, h, c], [expected, last_h, last_c])
    for name, dropped in seen.items():
        factor = dropped / lstm.state_dict()[name]
        assert torch.equal(factor, factor[:1].expand_as(factor))
        if "weight_hh" in name:
            torch.testing.assert_close(factor[factor != 0], torch.full_like(factor[factor != 0], 1 / (1 - p)))
            assert_probability(int((factor[0] == 0).sum()), factor[0].numel(), p)
        else:
            assert torch.equal(factor, torch.ones_like(factor))


def test_the_first_step_is_plain_and_the_second_is_not() -> None:
    lstm = weight_dropped(0.5, 1)
    x = torch.randn(2, 5, 3).double()
    y, again = lstm(x)[0], lstm(x)[0]
    assert torch.equal(y[0], again[0])
    assert (y[1] != again[1]).any(-1).all()


def test_eval_mode_is_the_plain_lstm() -> None:
    lstm = weight_dropped(0.5).eval()
    plain = nn.LSTM(3, 20, 2).double().eval()
    plain.load_state_dict(lstm.state_dict())
    x = torch.randn(6, 5, 3).double()
    assert torch.equal(lstm(x)[0], plain(x)[0])


def test_the_gradient_is_masked_as_the_weight_is() -> None:
    lstm = weight_dropped(0.5, 1)
    with flipout.hold(lstm):
        lstm(torch.randn(6, 5, 3).double())[0].sum().backward()
        dropped = flipout.example_weights(lstm)["weight_hh_l0"][0] == 0
    grad = lstm.weight_hh_l0.grad
    assert isinstance(grad, torch.Tensor)
    assert torch.equal(grad == 0, dropped)


def test_flipout_gives_every_sequence_its_own_mask() -> None:
    lstm = flipout.perturb(copy.deepcopy(nn.LSTM(3, 20)), flipout.DropConnect(0.5), where="*weight_hh*")
    with flipout.hold(lstm):
        lstm(torch.randn(6, 5, 3))
        dropped = flipout.example_weights(lstm)["weight_hh_l0"] == 0
    assert len(dropped.flatten(1).unique(dim=0)) == 5
