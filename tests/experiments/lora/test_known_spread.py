"""The adapter of known spread: B drawn, nothing trained, and the prompt as long as it says."""

import pytest
import torch
from torch.nn.functional import softplus

from flipout import errors
from flipout.experiments.lora import known_spread
from flipout.experiments.lora.known_spread import LORA_INFORMATION, KnownSpreadSettings
from flipout.experiments.lora.per_token import posterior_layers


def test_the_adapter_has_the_spread_that_the_settings_say(run) -> None:
    config = KnownSpreadSettings(device="cpu", std=0.3, b_std=0.5)
    model = known_spread._model(config, run)
    layers = posterior_layers(model)
    assert len(layers) == 4  # q_proj and v_proj of two layers
    for layer in layers:
        spread = softplus(layer.get_parameter("weight_rho"))
        torch.testing.assert_close(spread, torch.full_like(spread, 0.3))
    b = torch.cat([p.flatten() for name, p in model.named_parameters() if "lora_B" in name])
    assert 0.4 < float(b.detach().std()) < 0.6
    assert not model.training
    assert known_spread._prompt(config, run).shape == (1, 34)


def test_a_real_prompt_is_cut_at_its_beginning(run, monkeypatch) -> None:
    def words(text: str) -> dict[str, list[int]]:
        return {"input_ids": list(range(len(text.split())))}

    monkeypatch.setattr(known_spread, "base_model", lambda *_: (None, words))
    config = KnownSpreadSettings(device="cpu", model="smollm2", length=3)
    last = len(known_spread.PROMPT.split()) - 1
    assert known_spread._prompt(config, run).tolist() == [[last - 2, last - 1, last]]


def test_what_must_hold_of_a_real_model_is_reported_of_none_with_random_weights(tmp_path, monkeypatch) -> None:
    found = {"explicit": [0.4, 0.01], "per sequence": [0.41, 0.01], "per token": [0.1, 0.01]}
    monkeypatch.setattr(known_spread, "measured_information", lambda *_, **__: found)
    random = LORA_INFORMATION.run(KnownSpreadSettings(device="cpu"), tmp_path / "random", preset="quick")
    assert [(check.id, check.kind) for check in random.checks] == [
        ("same-information", "must_hold"),
        ("per-token-share", "reported"),
    ]
    monkeypatch.setattr(known_spread, "_model", lambda *_: None)
    monkeypatch.setattr(known_spread, "_prompt", lambda *_: None)
    real = LORA_INFORMATION.run(KnownSpreadSettings(device="cpu", model="smollm2"), tmp_path / "real", preset="paper")
    assert [(check.id, check.kind, check.holds) for check in real.checks] == [
        ("same-information", "must_hold", True),
        ("per-token", "must_hold", True),
        ("per-token-share", "reported", True),
    ]


def test_bad_settings() -> None:
    with pytest.raises(errors.InvalidArgument, match="samples=3"):
        KnownSpreadSettings(samples=3)
