"""A member that is loaded by PEFT computes what the member computes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn

from flipout import errors
from tests.es.language import VOCABULARY, gpt2, llama, member_model, strategy
from tests.es.toys import strategy as toy

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tie_word_embeddings:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fan_in_fan_out:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),
]
IDS = torch.randint(VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(2))


def no_biases(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith("bias") or "ln" in name)
    return model


def logits(population: Any) -> Tensor:
    return population(input_ids=IDS.expand(population.size, *IDS.shape), batched=True, output="logits")


@pytest.mark.parametrize("make", [llama, lambda: llama(tied=False)], ids=["tied", "untied"])
@pytest.mark.parametrize("image", [0, 1], ids=["plain", "mirrored"])
def test_peft_loads_a_member(make: Any, image: int, tmp_path: Path) -> None:
    plain = make()
    population = strategy(copy.deepcopy(plain), antithetic=True).ask()[image]
    adapter = population.adapter(2)
    adapter.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    loaded = PeftModel.from_pretrained(copy.deepcopy(plain), str(tmp_path))
    with torch.no_grad():
        expected = logits(population)[2]
        torch.testing.assert_close(loaded(input_ids=IDS).logits, expected)
        assert float((plain(input_ids=IDS).logits - expected).abs().max()) > 0.1
    assert repr(adapter) == "Adapter(16 matrices of rank one, 5 whole modules)"


def test_peft_loads_a_member_of_gpt2(tmp_path: Path) -> None:
    """Its weights are stored (in, out)."""
    plain = gpt2()
    (population,) = strategy(no_biases(copy.deepcopy(plain))).ask()
    population.adapter(1).save(tmp_path)
    loaded = PeftModel.from_pretrained(copy.deepcopy(plain), str(tmp_path))
    with torch.no_grad():
        expected = member_model(population, 1)(input_ids=IDS).logits
        torch.testing.assert_close(loaded(input_ids=IDS).logits, expected)


def test_in_bf16_the_adapter_keeps_what_freezing_rounds_away(tmp_path: Path) -> None:
    """σ is below bf16's spacing at most weights, so the frozen model is nearly the mean. The adapter is not.

    Norms are left out: 1 + σ rounds to 1 in the population itself.
    """
    plain = llama(torch.bfloat16)
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_("norm" not in name)
    (population,) = strategy(copy.deepcopy(plain), std=1e-3).ask()
    population.adapter(0).save(tmp_path)
    loaded = PeftModel.from_pretrained(copy.deepcopy(plain).float(), str(tmp_path))
    exact = strategy(copy.deepcopy(plain).float(), std=float(torch.tensor(1e-3).bfloat16())).ask()[0]
    with torch.no_grad():
        mean = plain.float()(input_ids=IDS).logits
        expected, frozen = logits(exact)[0] - mean, member_model(population, 0).float()(input_ids=IDS).logits - mean
        from_adapter = loaded(input_ids=IDS).logits - mean
    assert float((from_adapter - expected).norm()) < 0.01 * float(expected.norm())
    assert float((frozen - expected).norm()) > 0.3 * float(expected.norm())


def test_the_files_say_what_they_hold(tmp_path: Path) -> None:
    (population,) = strategy(llama()).ask()
    adapter = population.adapter(0)
    adapter.save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (1, 1, "LORA")
    assert "model.layers.0.self_attn.q_proj" in config["target_modules"]
    assert adapter.tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"].shape == (1, 16)
    signs = adapter.tensors["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"]
    torch.testing.assert_close(signs.abs(), torch.full((24, 1), 0.05, dtype=torch.float64))


def test_bad_input(tmp_path: Path) -> None:
    (population,) = strategy(llama()).ask()
    for member in (6, -1, 1.0):
        with pytest.raises(errors.InvalidArgument, match="adapter"):
            population.adapter(member)  # pyright: ignore[reportArgumentType]
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.RunError, match="choose another folder"):
        population.adapter(0).save(tmp_path / "file")


def test_noise_that_no_adapter_holds_is_refused() -> None:
    (population,) = strategy(llama(), scheme="flipout", group=6).ask()
    with pytest.raises(errors.Unsupported, match="scheme='rank_one'"):
        population.adapter(0)
    (population,) = toy(None, scheme="rank_one").ask()
    with pytest.raises(errors.Unsupported, match=r"bias has noise: a LoRA adapter has no noise of biases"):
        population.adapter(0)
    (population,) = toy(None, nn.Conv1d(2, 3, 2, bias=False), scheme="rank_one").ask()
    with pytest.raises(errors.Unsupported, match="not yet for a Conv1d"):
        population.adapter(0)
