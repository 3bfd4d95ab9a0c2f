"""Three ways to draw weights, one prompt."""

import pytest
import torch

from flipout.experiments.lora.information import measured_information
from tests.peft.models import bayesian, tokens


def test_all_ways_agree_without_noise_and_have_errors_with_it() -> None:
    model, prompt = bayesian().float(), tokens(1)["input_ids"]
    with torch.no_grad():
        model.get_base_model().lm_head.weight.mul_(50)
    torch.manual_seed(0)
    found = measured_information(model, prompt, 200, 64, seed=1)
    assert list(found) == ["explicit", "per sequence", "per token"]
    assert all(value > 3 * error > 0 for value, error in found.values())
    again = measured_information(model, prompt, 200, 50, seed=1)["per sequence"]
    assert found["per sequence"] == pytest.approx(again, abs=1e-6)  # chunks see one draw
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_rho"):
                parameter.fill_(-40.0)
    assert all(abs(value) < 1e-6 for value, _ in measured_information(model, prompt, 100, 64, seed=1).values())
