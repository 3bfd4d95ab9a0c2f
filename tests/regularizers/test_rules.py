"""Rules change one step at a time: masks in their order, and zoneout keeps the last values."""

import pytest
import torch

from flipout.ops.recurrent import LSTM
from flipout.regularizers._rules import Rules, StateRuleCell, StepMasks, Zoneout, suits_kernel


def test_masks_are_used_one_per_step_and_no_further() -> None:
    masks = torch.arange(6.0).view(3, 1, 2)
    rule = StepMasks(masks, 3)
    part = torch.ones(4, 2)
    for step in range(3):
        assert torch.equal(rule(part), masks[step].expand(4, 2))
    with pytest.raises(StopIteration):
        rule(part)
    always = StepMasks(masks[:1], 2)
    assert torch.equal(always(part), always(part))


def test_zoneout_keeps_h_and_c_separately() -> None:
    keep = torch.tensor([[[True, False]], [[False, True]]])
    rule = Zoneout(keep, ~keep)
    new, last = (torch.ones(1, 2), 2 * torch.ones(1, 2)), (torch.zeros(1, 2), -torch.ones(1, 2))
    h, c = rule(new, last)
    assert h.tolist() == [[0, 1]]
    assert c.tolist() == [[2, -1]]
    h, c = rule(new, last)
    assert h.tolist() == [[1, 0]]
    assert c.tolist() == [[-1, 2]]


def test_a_cell_gives_its_rule_the_projected_state() -> None:
    seen = []

    def rule(new, last):
        seen.append((new, last))
        return new

    cell = StateRuleCell(LSTM(), lambda h: h[:, :1], rule)
    x, state = torch.randn(3, 8), (torch.zeros(3, 1), torch.randn(3, 2))
    h, c = cell.step(x, torch.zeros(3, 8), state)
    plain_h, plain_c = LSTM().step(x, torch.zeros(3, 8), state)
    assert torch.equal(h, plain_h[:, :1])
    assert torch.equal(c, plain_c)
    assert seen[0][1] is state


def test_kernels_know_masks_and_zoneout_alone() -> None:
    masks = StepMasks(torch.ones(1, 1, 2), 1)
    keep = torch.ones(1, 1, 2, dtype=torch.bool)
    assert suits_kernel(Rules())
    assert suits_kernel(Rules(g=masks, c=masks, state=Zoneout(keep, keep)))
    assert not suits_kernel(Rules(g=torch.relu))
    assert not suits_kernel(Rules(state=lambda new, last: new))
