"""PEFT's adapters over a tiny Llama."""

from typing import Any

import peft
import pytest
from torch import nn

from flipout import errors

from . import text
from .oracle import Family, compare

BOUND = 1e-12
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient:FutureWarning")  # peft asks what transformers deprecates


def adapted(**options: Any) -> nn.Module:
    """A Llama with low-rank adapters that are not 0."""
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options)
    return peft.get_peft_model(text.model("Llama"), config)  # pyright: ignore[reportArgumentType]


def experts() -> nn.Module:
    """A Mixtral whose experts' Parameters are adapted through a parametrisation."""
    config = peft.LoraConfig(
        r=2, target_modules=[], target_parameters=["mlp.experts.gate_up_proj"], init_lora_weights=False
    )
    return peft.get_peft_model(text.model("Mixtral"), config)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("where", [None, "*lora_*"])
def test_lora(where: str | None) -> None:
    assert compare(Family(adapted, text.tokens, where=where)) < BOUND


def test_dora_is_right_where_the_weights_are_shared() -> None:
    def dora() -> nn.Module:
        return adapted(use_dora=True)

    assert compare(Family(dora, text.tokens, scheme="shared")) < BOUND
    with pytest.raises(
        errors.UnservedRead, match=r"lora_magnitude_vector\.default\.weight: div at .*dora\.py:\d+ reads"
    ):
        compare(Family(dora, text.tokens, where="*lora_*"))


@pytest.mark.parametrize("where", ["*experts*", "*lora_*"])
def test_adapted_parameters_are_refused(where: str) -> None:
    with pytest.raises(errors.UnservedRead, match="experts"):
        compare(Family(experts, text.tokens, where=where))
