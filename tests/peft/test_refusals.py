"""Adapters that cannot have a posterior are refused by name, and left as they were."""

import sys
from typing import Any

import peft
import pytest
import torch
from peft.tuners.lora import config as lora
from torch import nn

import flipout
from flipout import errors
from flipout.peft._refusals import chosen_adapter

from ..zoo import text
from .models import adapted


def refused(model: Any, match: str) -> None:
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(errors.Unsupported, match=match):
        flipout.peft.bayesian_lora(model)
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_dora() -> None:
    refused(adapted(use_dora=True), "DoRA")


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "is IA3"),
        (peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2), "is PROMPT_TUNING"),
        (peft.AdaLoraConfig(target_modules=["q_proj"], total_step=10), "is ADALORA"),
    ],
    ids=["ia3", "prompt tuning", "adalora"],
)
def test_other_methods(config: Any, match: str) -> None:
    refused(peft.get_peft_model(text.model("Llama"), config), match)  # pyright: ignore[reportArgumentType]


def test_target_parameters() -> None:
    config = peft.LoraConfig(r=2, target_modules=[], target_parameters=["mlp.experts.gate_up_proj"])
    refused(peft.get_peft_model(text.model("Mixtral"), config), "target_parameters")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"alora_invocation_tokens": [4, 5]}, "ALoraLinearVariant"),
        ({"init_lora_weights": "mica"}, "MiCALinearVariant"),
        ({"velora_config": lora.VeloraConfig()}, "VeloraLinearVariant"),
        ({"kasa_config": lora.KasaConfig()}, "KasaLinearVariant"),
        ({"monteclora_config": lora.MontecloraConfig()}, "MontecloraLinearVariant"),
    ],
)
def test_variants(options: dict[str, Any], name: str) -> None:
    refused(adapted(**options), name)


def test_layers_that_nobody_compared() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]

    config = peft.LoraConfig(r=2, target_modules=["attention"])
    refused(peft.get_peft_model(Attention(), config), "MultiheadAttention")  # pyright: ignore[reportArgumentType]


def test_tied_adapters() -> None:
    model = adapted(target_modules=["embed_tokens"])
    model.peft_config["default"].ensure_weight_tying = True
    refused(model, "ensure_weight_tying")


def test_several_active_adapters_need_a_name() -> None:
    model = adapted()
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["q_proj"]))
    model.base_model.set_adapter(["default", "other"])
    with pytest.raises(errors.InvalidArgument, match="adapter=…"):
        chosen_adapter(model, None, "bayesian_lora")
    assert chosen_adapter(model, "other", "bayesian_lora") == "other"


def test_without_peft_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(errors.MissingExtra, match=r"flipout\[peft\]"):
        flipout.peft.bayesian_lora(nn.Linear(2, 2))
