"""Exported samples: plain PEFT computes with sample n what row n sees."""

import json
from pathlib import Path

import peft
import pytest
import torch

import flipout
from flipout import errors

from ..zoo import text
from .models import BOUND, adapted, bayesian, tokens

pytestmark = pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers`")


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["embed_tokens", "o_proj"]])
@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_each_sample_is_what_its_row_sees(tmp_path: Path, targets: list[str], scheme: str) -> None:
    plain = adapted(target_modules=targets, modules_to_save=["lm_head"])
    model = flipout.peft.bayesian_lora(plain, std=0.2, scheme=scheme)  # pyright: ignore[reportArgumentType]
    inputs = tokens(4)
    with torch.no_grad(), flipout.hold(model, seed=3, group=1), flipout.using(model, scheme="flipout"):
        expected = model(**inputs).logits
    folders = flipout.peft.export_samples(model, tmp_path, samples=4, seed=3)
    assert folders == [tmp_path / f"sample-{n}" for n in range(4)]
    assert {path.name for path in tmp_path.iterdir()} == {f"sample-{n}" for n in range(4)}
    for n, folder in enumerate(folders):
        assert "flipout_posterior" not in json.loads((folder / "adapter_config.json").read_text())
        torch.manual_seed(0)
        base = text.model("Llama").double()
        alone = peft.PeftModel.from_pretrained(base, str(folder), autocast_adapter_dtype=False).eval()
        actual = alone(input_ids=inputs["input_ids"][n : n + 1]).logits[0]
        assert float((actual - expected[n]).abs().max().detach() / expected.abs().max()) < BOUND
    assert not torch.allclose(model(**inputs).logits, expected, rtol=1e-3)


def test_all_samples_load_as_one_ensemble(tmp_path: Path) -> None:
    folders = flipout.peft.export_samples(bayesian(), tmp_path, samples=2)
    torch.manual_seed(0)
    model = peft.PeftModel.from_pretrained(text.model("Llama").double(), str(folders[0]), adapter_name="0")
    model.load_adapter(str(folders[1]), "1")
    first, second = model.eval()(**tokens(2), adapter_names=["0", "1"]).logits
    assert not torch.allclose(first, second)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(errors.NotPerturbed, match="'default' has no posterior"):
        flipout.peft.export_samples(adapted(), tmp_path)
    model = bayesian()
    flipout.peft.export_samples(model, tmp_path, samples=1)
    with pytest.raises(errors.InvalidArgument, match="exists already"):
        flipout.peft.export_samples(model, tmp_path, samples=2)
    with pytest.raises(errors.InvalidArgument, match="samples=0"):
        flipout.peft.export_samples(model, tmp_path / "other", samples=0)
