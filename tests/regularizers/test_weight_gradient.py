"""The gradient of W_hh in one product is the sum over steps."""

import pytest
import torch

from flipout.regularizers._weight_gradient import CollectedGradient, is_worthwhile


@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_the_sum_over_steps(reverse: bool) -> None:
    gates = torch.randn(3, 4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    states: list[torch.Tensor] = []
    out = CollectedGradient.apply(gates, weight, states, reverse)
    assert torch.equal(out, gates)  # pyright: ignore[reportArgumentType]
    states += [torch.randn(3, 2, dtype=torch.float64) for _ in range(4)]  # in the order of the steps
    grad = torch.randn_like(gates)
    dgates, dweight = torch.autograd.grad(out, (gates, weight), grad)  # pyright: ignore[reportArgumentType]
    assert torch.equal(dgates, grad)
    at = reversed(range(4)) if reverse else range(4)
    torch.testing.assert_close(dweight, sum(grad[:, t].T @ h for t, h in zip(at, states, strict=True)))


def test_not_on_a_cpu() -> None:
    assert not is_worthwhile(torch.zeros(2))
