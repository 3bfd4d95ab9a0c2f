"""Saving a posterior with its adapter: bit for bit back again, readable by plain PEFT, checked when it is read."""

import hashlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import flipout
from flipout import bayes, errors
from flipout.peft._disk import _own_checksum

from ..zoo import text
from .models import adapted, bayesian, randomise, tokens

pytestmark = pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")


def base() -> Any:
    torch.manual_seed(0)
    return text.model("Llama").double()


def trained(**options: Any) -> Any:
    """A posterior whose spreads differ from weight to weight."""
    model = bayesian(base=base(), **options)
    torch.manual_seed(9)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_rho"):
                parameter.add_(torch.randn_like(parameter))
    return model


def predicted(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    return bayes.predict(model, inputs, samples=8, likelihood="categorical", output="logits", seed=4).mean


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["embed_tokens", "q_proj"]])
def test_a_loaded_adapter_predicts_the_same(tmp_path: Path, targets: list[str]) -> None:
    model, inputs = trained(target_modules=targets), tokens()
    model.save_pretrained(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        again = flipout.peft.load(base(), tmp_path, autocast_adapter_dtype=False)
    assert isinstance(again, peft.PeftModelForCausalLM)
    assert torch.equal(predicted(again, inputs), predicted(model, inputs))
    assert torch.equal(bayes.kl(again), bayes.kl(model))
    assert not any(parameter.requires_grad for parameter in again.parameters())
    trainable = flipout.peft.load(base(), tmp_path, is_trainable=True, autocast_adapter_dtype=False)
    spreads = [p for name, p in trainable.named_parameters() if name.endswith("_rho")]
    assert spreads
    assert all(spread.requires_grad for spread in spreads)


def test_a_folder_inside_a_folder(tmp_path: Path) -> None:
    """PEFT's `subfolder`, by both ways to load."""
    model, inputs = trained(), tokens()
    model.save_pretrained(str(tmp_path / "first"))
    options: dict[str, Any] = {"subfolder": "first", "autocast_adapter_dtype": False}
    again = flipout.peft.load(base(), tmp_path, **options)
    assert torch.equal(predicted(again, inputs), predicted(model, inputs))
    again.load_adapter(str(tmp_path), "second", **options)
    spreads = {name: p for name, p in again.named_parameters() if name.endswith("_rho")}
    first = [name for name in spreads if ".default." in name]
    assert first
    assert all(torch.equal(spreads[name], spreads[name.replace(".default.", ".second.")]) for name in first)
    with pytest.raises(errors.DataError, match="elsewhere' has no adapter with a posterior"):
        flipout.peft.load(base(), tmp_path, subfolder="elsewhere")


def test_the_files_are_an_ordinary_adapter_and_the_spreads(tmp_path: Path) -> None:
    trained().save_pretrained(str(tmp_path))
    names = {path.name for path in tmp_path.iterdir()} - {"README.md"}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "flipout_posterior.safetensors"}
    weights = load_file(tmp_path / "adapter_model.safetensors")
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in weights)
    spreads = load_file(tmp_path / "flipout_posterior.safetensors")
    assert len(spreads) == 4
    assert all(name.endswith("lora_A.rho") for name in spreads)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())["flipout_posterior"]
    assert saved | {"sha256": None} == {
        "format": 1,
        "adapter": "default",
        "std": 0.2,
        "prior_std": 0.5,
        "which": "A",
        "scheme": "flipout",
        "sha256": None,
    }


def test_plain_peft_loads_the_means_and_says_what_it_drops(tmp_path: Path) -> None:
    model, inputs = trained(), tokens()
    model.save_pretrained(str(tmp_path))
    said = (
        r"'flipout_posterior: the spreads .* are dropped here .* use flipout\.peft\.load\(base, folder\)'\] for class"
    )
    with pytest.warns(UserWarning, match=said):
        plain = peft.PeftModel.from_pretrained(base(), str(tmp_path), autocast_adapter_dtype=False)
    assert torch.equal(plain(**inputs).logits, model(**inputs).logits)
    assert not any(row.noise for row in flipout.summary(plain).rows)


def test_several_adapters_and_their_names(tmp_path: Path) -> None:
    model, inputs = trained(), tokens()
    model.add_adapter("other", peft.LoraConfig(r=3, target_modules=["o_proj"], task_type="CAUSAL_LM"))
    model.add_adapter("plain", peft.LoraConfig(r=3, target_modules=["o_proj"], task_type="CAUSAL_LM"))
    randomise(model)
    model.double()
    flipout.peft.bayesian_lora(model, std=0.3, which="AB", adapter="other")
    model.save_pretrained(str(tmp_path))
    assert not (tmp_path / "plain" / "flipout_posterior.safetensors").exists()
    again = flipout.peft.load(base(), tmp_path, autocast_adapter_dtype=False)
    flipout.peft.load(again, tmp_path / "other", autocast_adapter_dtype=False)
    assert list(again.peft_config) == ["default", "other"]
    for name in ("default", "other"):
        model.set_adapter(name)
        again.set_adapter(name)
        assert torch.equal(predicted(again, inputs), predicted(model, inputs))
    with pytest.raises(errors.InvalidArgument, match="adapter='other'"):
        flipout.peft.load(again, tmp_path / "other")
    with pytest.raises(errors.DataError, match="no adapter with a posterior"):
        flipout.peft.load(base(), tmp_path / "plain")


def test_a_posterior_loads_into_one_that_exists(tmp_path: Path) -> None:
    """As transformers' Trainer does to resume: `model.load_adapter(folder, "default")`."""
    model, inputs = trained(), tokens()
    model.save_pretrained(str(tmp_path / "posterior"))
    fresh = bayesian(base=base())
    fresh.load_adapter(str(tmp_path / "posterior"), "default", is_trainable=True, autocast_adapter_dtype=False)
    assert torch.equal(predicted(fresh, inputs), predicted(model, inputs))
    adapted(base=base()).save_pretrained(str(tmp_path / "plain"))
    with pytest.raises(errors.DataError, match="the folder has none"):
        fresh.load_adapter(str(tmp_path / "plain"), "default")
    other = flipout.peft.bayesian_lora(adapted(base=base()), prior_std=0.7)
    with pytest.raises(errors.DataError, match=r"prior_std=0\.7"):
        other.load_adapter(str(tmp_path / "posterior"), "default")


def test_a_state_dict_that_is_given_is_the_one_that_is_saved(tmp_path: Path) -> None:
    model = trained()
    state = {name: value + 1 if "lora_B" in name else value for name, value in model.state_dict().items()}
    model.save_pretrained(str(tmp_path), state_dict=state)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    name = next(name for name in weights if "lora_B" in name)
    assert torch.equal(weights[name], model.state_dict()[name.replace("lora_B", "lora_B.default")] + 1)


def test_pickles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.Unsupported, match="safetensors only"):
        trained().save_pretrained(str(tmp_path), safe_serialization=False)
    assert not list(tmp_path.iterdir())


DAMAGES = {
    "spreads": r"flipout_posterior\.safetensors: SHA-256 .* found",
    "weights": r"adapter_model\.safetensors: SHA-256 .* found",
    "missing": r"flipout_posterior\.safetensors: No such file",
    "config": r"adapter_config\.json: it is not JSON",
    "nan": "expected finite numbers",
    "shape": "of another shape",
    "unknown": "is missing, unknown",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_comes_from_disk_is_checked(tmp_path: Path, damage: str) -> None:
    trained().save_pretrained(str(tmp_path))
    spreads, config = tmp_path / "flipout_posterior.safetensors", tmp_path / "adapter_config.json"
    if damage == "missing":
        spreads.unlink()
    elif damage == "config":
        config.write_text(config.read_text()[:-40])
    elif damage == "weights":  # saving was interrupted after the weights
        other = tmp_path / "other"
        bayesian(base=base(), seed=3).save_pretrained(str(other))
        shutil.copy(other / "adapter_model.safetensors", tmp_path)
    elif damage == "spreads":
        content = bytearray(spreads.read_bytes())
        content[-1] ^= 1
        spreads.write_bytes(content)
    else:
        values = load_file(spreads)
        name = next(iter(values))
        if damage == "unknown":
            values["other"] = values.pop(name)
        else:
            values[name] = values[name][:1].clone() if damage == "shape" else values[name] * float("nan")
        save_file(values, spreads)
        saved = json.loads(config.read_text())
        checksums = saved["flipout_posterior"]["sha256"]
        checksums[spreads.name] = hashlib.sha256(spreads.read_bytes()).hexdigest()
        checksums[config.name] = _own_checksum(saved)
        config.write_text(json.dumps(saved))
    with pytest.raises(errors.DataError, match=DAMAGES[damage]):
        flipout.peft.load(base(), tmp_path)


def test_a_posterior_is_not_combined_as_if_it_were_plain() -> None:
    model = adapted()
    for name in ("other", "third"):
        model.add_adapter(name, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    randomise(model)
    flipout.peft.bayesian_lora(model, adapter="default")
    with pytest.raises(errors.Unsupported, match=r"adapter 'default' has a posterior.*export_samples\(model, folder\)"):
        model.add_weighted_adapter(["other", "default"], [0.5, 0.5], "both", combination_type="linear")
    assert "both" not in model.peft_config
    model.add_weighted_adapter(["other", "third"], [0.5, 0.5], "plain", combination_type="linear")
    assert "plain" in model.peft_config
