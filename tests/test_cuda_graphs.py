"""Before and after a capture: autograd is prepared, and the first error is named."""

from typing import Any

import pytest
import torch

import flipout
from flipout import _cuda_graphs
from tests.captured import FakeCuda


def test_the_cause_is_the_first_error_of_the_capture(cuda: FakeCuda) -> None:
    cuda.errors = [ValueError("")]
    captured = flipout.capture(cuda.step)
    captured()
    captured()
    try:
        raise KeyError("handled while the step is called")
    except KeyError:
        with pytest.warns(UserWarning, match="ValueError$"):
            captured()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_preparing_autograd_has_no_side_effects(mode: Any) -> None:
    before = torch.get_rng_state()
    with mode(), torch.autocast("cpu", torch.bfloat16):
        seen: list[str] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: seen.append(str(x.dtype)) or x, lambda x: x):
            _cuda_graphs.prepare_autograd(torch.device("cpu"))
    assert set(seen) == {"torch.float32"}  # a backward pass ran, through a product in single precision
    assert torch.equal(torch.get_rng_state(), before)
