"""A first pass finds reads around the noise, and Parameters that nobody reads."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, OUT, SERVED, N, Reader, T


class Alias(nn.Module):
    """Keeps a Parameter under a name that no module knows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, OUT)
        self.kept = [self.linear.weight]

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.kept[0])


@pytest.mark.parametrize(
    "read",
    [
        lambda m, x: F.linear(x, m.linear._parameters["weight"]),
        lambda m, x: F.linear(x, next(m.linear.parameters())),
        lambda m, x: F.linear(x, dict(m.named_parameters())["linear.weight"]),
        None,
    ],
)
def test_a_read_around_the_noise_is_refused(read: Any) -> None:
    model = flipout.perturb(Alias() if read is None else Reader(read), GAUSSIAN, where="linear.weight")
    with pytest.raises(
        errors.UnservedRead, match=r"linear\.weight: linear at .*test_audit\.py:\d+ reads .* without noise"
    ):
        model(torch.randn(N, T, IN))
    assert not torch._C._len_torch_function_stack()
    with pytest.raises(errors.UnservedRead):  # the pass that failed was no look
        model(torch.randn(N, T, IN))


class KeptView(nn.Module):
    """Keeps a view of a Parameter from its construction, as an attribute or as a buffer."""

    def __init__(self, *, is_buffer: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, IN)
        if is_buffer:
            self.register_buffer("turned", self.linear.weight.data.T, persistent=False)
        else:
            self.turned = self.linear.weight.T

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + x @ self.turned


@pytest.mark.parametrize("is_buffer", [False, True])
def test_a_view_that_was_kept_is_refused(is_buffer: bool) -> None:
    model = flipout.perturb(KeptView(is_buffer=is_buffer), GAUSSIAN)
    with pytest.raises(errors.UnservedRead, match=r"linear\.weight: matmul at .*test_audit\.py:\d+ .* or a view of it"):
        model(torch.randn(N, T, IN))


def test_other_weights_in_the_same_memory_are_no_views() -> None:
    """cuDNN keeps all weights of a recurrent layer in one storage."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            together = torch.randn(2, IN, IN)
            self.linear = nn.Linear(IN, IN)
            self.linear.weight = nn.Parameter(together[0])
            self.beside = together[1]

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) @ self.beside

    model = flipout.perturb(Packed(), GAUSSIAN)
    model(torch.randn(N, T, IN))


def test_a_parameter_that_nothing_reads_is_named_once() -> None:
    model = flipout.perturb(Reader(SERVED["linear"]), GAUSSIAN, where=["linear.weight", "full.weight"])
    with pytest.warns(errors.NeverRead, match=r"did not read: full\.weight\..*KL is counted"):
        model(torch.randn(N, T, IN))
    model(torch.randn(N, T, IN))
    with flipout.sampling(model.eval()):
        model(torch.randn(N, T, IN))


def test_a_compiled_forward_is_not_watched() -> None:
    model = flipout.perturb(nn.Sequential(nn.Linear(IN, IN)), GAUSSIAN)
    model.forward = torch.compile(model.forward, backend="eager")  # pyright: ignore[reportAttributeAccessIssue]
    with flipout.hold(model, seed=1):
        assert torch.equal(model(torch.ones(N, IN)), model(torch.ones(N, IN)))
