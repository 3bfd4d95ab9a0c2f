"""PEFT's adapters over a tiny Llama."""

from typing import Any

import peft
import pytest
from torch import nn

import flipout
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
    with pytest.raises(errors.ExampleCount, match=r"lora_A\.default \(Linear\): its input has 16 rows"):
        compare(Family(dora, text.tokens, where="*lora_*"))  # it multiplies A with an identity matrix
    with pytest.raises(
        errors.UnservedRead, match=r"lora_magnitude_vector\.default\.weight: div at .*dora\.py:\d+ reads"
    ):
        compare(Family(dora, text.tokens, where="*magnitude*"))


@pytest.mark.parametrize("where", ["*experts*", "*lora_*"])
def test_adapted_parameters_are_refused(where: str) -> None:
    with pytest.raises(errors.UnservedRead, match="experts"):
        compare(Family(experts, text.tokens, where=where))


def prompted() -> nn.Module:
    """A Llama with a prompt that an encoder makes, once for all examples."""
    config = peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)
    return peft.get_peft_model(text.model("Llama"), config)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("where", [None, "prompt_encoder*", "prompt_encoder*mlp_head*"])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.filterwarnings("ignore::flipout.errors.LayoutUnknown")
def test_a_prompt_that_all_examples_share(where: str | None, shown: bool) -> None:
    options: Any = {"example_inputs": text.tokens(3)} if shown else {}
    with pytest.raises(
        errors.ExampleCount, match=r"scheme=\{'prompt_encoder\.default\.\*': 'shared', '\*': 'flipout'\}"
    ):
        compare(Family(prompted, text.tokens, where=where, options=options), gradients=False)
    scheme = {"prompt_encoder.*": "shared", "*": "flipout"}
    assert compare(Family(prompted, text.tokens, scheme=scheme, options=options)) < BOUND


def two_adapters() -> nn.Module:
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = peft.get_peft_model(text.model("Llama"), config, adapter_name="left")  # pyright: ignore[reportArgumentType]
    model.add_adapter("right", config)
    return model


@pytest.mark.parametrize(
    "names", [["__base__", "left", "right"], ["left", "right", "left"], ["right", "left", "right"]]
)
@pytest.mark.parametrize("where", [None, "*lora_*"])
def test_an_adapter_of_some_examples_is_refused(names: list[str], where: str | None) -> None:
    """PEFT gives an adapter the rows that use it, so their numbers in the batch are lost."""
    model = flipout.perturb(two_adapters().eval(), flipout.Gaussian(0.3), where=where)
    with flipout.hold(model), pytest.raises(errors.ExampleCount, match=r"lora_A\.(left|right) "):
        model(**text.tokens(3), adapter_names=names)
    with flipout.hold(model), pytest.warns(errors.NeverRead, match=r"lora_A\.right"):
        model(**text.tokens(3), adapter_names=["left"] * 3)
