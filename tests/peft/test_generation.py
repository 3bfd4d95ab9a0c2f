"""Generated texts have one sample of the weights each; uncertainties are those of explicit samples."""

import math
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import flipout
from flipout import errors

from ..zoo import text
from .models import adapted, bayesian, tokens

OPTIONS = {"max_new_tokens": 6, "pad_token_id": 0, "eos_token_id": None}


def plain(folder: Path) -> Any:
    torch.manual_seed(0)
    base: Any = text.model("Llama").double()
    return peft.PeftModel.from_pretrained(base, str(folder), autocast_adapter_dtype=False).eval()


def test_each_text_is_that_of_one_plain_adapter(tmp_path: Path) -> None:
    model = bayesian()
    inputs = tokens(1)
    texts = flipout.peft.generate(model, inputs, samples=4, seed=2, **OPTIONS)
    assert texts.shape == (4, 1, 13)
    for n, folder in enumerate(flipout.peft.export_samples(model, tmp_path, samples=4, seed=2)):
        expected = plain(folder).generate(**inputs, do_sample=False, **OPTIONS)
        assert torch.equal(texts[n], expected)
    assert len({tuple(row) for row in texts[:, 0].tolist()}) > 1


def test_chunks_give_the_same_texts() -> None:
    model, inputs = bayesian(), tokens(2)
    whole = flipout.peft.generate(model, inputs, samples=5, seed=2, **OPTIONS)
    assert torch.equal(flipout.peft.generate(model, inputs, samples=5, seed=2, chunk=4, **OPTIONS), whole)
    assert model.training is False


def test_texts_that_end_early_are_padded() -> None:
    model, inputs = bayesian(), tokens(1)
    found = flipout.peft.generate(model, inputs, samples=4, seed=2, chunk=1, max_new_tokens=6, pad_token_id=0)
    assert found.shape[:2] == (4, 1)


@pytest.mark.parametrize(
    ("option", "value"),
    [("num_return_sequences", 2), ("return_dict_in_generate", True), ("adapter_names", ["default", "default"])],
)
@pytest.mark.parametrize("place", ["argument", "config", "model"])
def test_options_that_give_something_else_are_refused(option: str, value: Any, place: str) -> None:
    model: Any = bayesian()
    options: dict[str, Any] = {}
    if place == "argument" or option == "adapter_names":
        options = {option: value}
    elif place == "config":
        options = {"generation_config": transformers.GenerationConfig(do_sample=True, **{option: value})}
    else:
        model.generation_config.update(do_sample=True, **{option: value})
    with pytest.raises(errors.Unsupported, match=option):
        flipout.peft.generate(model, tokens(2), **options)


def test_prompts_are_checked() -> None:
    model, inputs = bayesian(), tokens(2)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, -2:] = 0
    with pytest.raises(errors.InvalidInput, match="padding_side='left'"):
        flipout.peft.generate(model, {**inputs, "attention_mask": mask}, **OPTIONS)
    with pytest.raises(errors.InvalidInput, match=r"\['inputs_embeds'\]; expected input_ids"):
        flipout.peft.generate(model, {"inputs_embeds": torch.ones(2, 3, 16)}, **OPTIONS)


def test_the_beams_of_a_text_share_its_weights() -> None:
    model, inputs = bayesian(), tokens(2)
    options = {**OPTIONS, "do_sample": False, "num_beams": 2}
    texts = flipout.peft.generate(model, inputs, samples=3, seed=2, **options)
    with flipout.hold(model, seed=2):  # the first sample
        assert torch.equal(model.generate(**inputs, **options), texts[0])


def test_the_model_itself_generates_under_one_draw_or_the_mean() -> None:
    model, inputs = bayesian(), tokens(2)
    options = {**OPTIONS, "do_sample": False, "use_cache": False}
    with (
        flipout.sampling(model),
        pytest.raises(errors.StaleCache, match="fresh draw for every token"),
    ):
        model.generate(**inputs, **options)
    model.generate(**inputs, **options, num_beams=2)  # the mean
    with flipout.hold(model, seed=1):  # the beams of a prompt share its weights
        both = model.generate(**inputs, **options, num_beams=2)
    for row in range(2):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        with flipout.hold(model, seed=1, first=row):
            assert torch.equal(model.generate(**alone, **options, num_beams=2)[0], both[row])
    with flipout.hold(model, seed=1):
        assert torch.equal(model.generate(**inputs, **options), model.generate(**inputs, **options))


def test_a_model_without_a_posterior_is_refused() -> None:
    with pytest.raises(errors.NotPerturbed, match="bayesian_lora"):
        flipout.peft.generate(adapted(), tokens(1))


def test_the_uncertainty_of_a_text(tmp_path: Path) -> None:
    model, inputs = bayesian(), tokens(2)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, -1] = 0
    options: dict[str, Any] = {"attention_mask": mask, "samples": 4, "group": 1, "seed": 3}
    found = flipout.peft.text_uncertainty(model, inputs["input_ids"], prompt=3, **options)
    assert found.total.shape == (2, 4)
    probabilities = []
    for folder in flipout.peft.export_samples(model, tmp_path, samples=4, seed=3):
        probabilities.append(plain(folder)(**inputs).logits[:, 2:-1].detach().softmax(-1))
    each = torch.stack(probabilities)
    total, aleatoric = (torch.special.entr(p).sum(-1) for p in (each.mean(0), each))
    expected = total - aleatoric.mean(0)
    torch.testing.assert_close(found.total[0], total[0])
    torch.testing.assert_close(found.epistemic[0], expected[0])
    torch.testing.assert_close(found.aleatoric[1, :3], aleatoric.mean(0)[1, :3])
    assert found.epistemic[1].isnan().tolist() == [False] * 3 + [True]
    with pytest.raises(errors.InvalidArgument, match="prompt=7"):
        flipout.peft.text_uncertainty(model, inputs["input_ids"], prompt=7)


def test_agreement() -> None:
    found = flipout.peft.agreement(["yes", "no", "yes", "yes"])
    assert (found.answer, found.share, found.counts) == ("yes", 0.75, {"yes": 3, "no": 1})
    assert found.entropy == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert str(flipout.peft.agreement(["a", "a"]).entropy) == "0.0"
    assert flipout.peft.agreement([(3, 4), (3, 4), (5,)]).answer == (3, 4)
    with pytest.raises(errors.InvalidInput, match="no answers"):
        flipout.peft.agreement([])


@pytest.mark.parametrize("answers", [torch.ones(3, 2), [torch.ones(2)] * 2, [[1], [1]]])
def test_answers_that_cannot_be_counted_are_refused(answers: Any) -> None:
    with pytest.raises(errors.InvalidInput, match=r"tuple\(row\)"):
        flipout.peft.agreement(answers)
