"""An LSTM with signs of each step equals a loop over its sequences, each step with weights of its own."""

import torch
from torch import nn

from flipout.experiments.language import step_signs
from flipout.experiments.language.step_signs import StepSignsLSTM


def layer() -> tuple[StepSignsLSTM, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    x, h, c = torch.randn(3, 4, 2), torch.randn(1, 3, 5), torch.randn(1, 3, 5)
    return StepSignsLSTM(2, 5, batch_first=True).double(), x.double(), (h.double(), c.double())


def test_equals_a_loop_over_sequences_and_steps(monkeypatch):
    lstm, x, (h, c) = layer()
    drawn: list[torch.Tensor] = []
    draw = step_signs.random_signs
    monkeypatch.setattr(step_signs, "random_signs", lambda like: drawn.append(draw(like)) or drawn[-1])
    y, (last_h, last_c) = lstm(x, (h, c))
    base, *signs = drawn
    assert len(signs) == 2 * 4
    for n in range(3):
        state = (h[:, n : n + 1], c[:, n : n + 1])
        for t in range(4):
            s, r = signs[2 * t][n], signs[2 * t + 1][n]
            step = nn.LSTM(2, 5, batch_first=True).double()
            step.load_state_dict(lstm.state_dict())
            with torch.no_grad():
                weight = step.get_parameter("weight_hh_l0")
                weight += weight * base * r[:, None] * s
            expected, state = step(x[n : n + 1, t : t + 1], state)
            torch.testing.assert_close(y[n, t], expected[0, 0])
        torch.testing.assert_close(last_h[:, n], state[0][:, 0])
        torch.testing.assert_close(last_c[:, n], state[1][:, 0])


def test_is_the_plain_layer_in_eval_mode_and_draws_anew_in_training():
    lstm, x, state = layer()
    plain = nn.LSTM(2, 5, batch_first=True).double()
    plain.load_state_dict(lstm.state_dict())
    assert torch.equal(lstm.eval()(x, state)[0], plain(x, state)[0])
    lstm.train()
    assert not torch.equal(lstm(x, state)[0], lstm(x, state)[0])


def test_has_gradients_for_every_weight():
    lstm, x, state = layer()
    lstm(x, state)[0].square().sum().backward()
    for parameter in lstm.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
