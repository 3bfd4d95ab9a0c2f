"""Encoder-decoders, images, sound, video and several of them at once, against the loop over their examples."""

import warnings
from typing import Any

import pytest

from flipout import errors

from . import others
from .oracle import Family, compare

BOUND = 1e-12


def logits(output: Any) -> Any:
    return output.logits


@pytest.mark.parametrize("name", others.AS_THEY_COME)
def test_a_model_is_its_examples_alone(name: str) -> None:
    make, inputs = others.AS_THEY_COME[name]
    assert compare(Family(make, inputs, output=logits), gradients=False) < BOUND


@pytest.mark.parametrize("name", others.SHOWN)
def test_a_batch_shows_where_the_examples_are(name: str) -> None:
    """Windows, frames and time-major layers, which are refused without a batch."""
    make, inputs = others.SHOWN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.FlipoutWarning)  # parts that are not called, and are named
        if name != "Llava":  # some of its ids are places of an image, which no other id may take
            with pytest.raises(errors.ExampleCount, match="perturb a batch"):
                compare(Family(make, inputs, output=logits), gradients=False)
        shown = {"example_inputs": inputs(3)}
        assert compare(Family(make, inputs, output=logits, options=shown), gradients=False) < BOUND


def test_a_table_that_all_examples_share_has_one_weight() -> None:
    with pytest.raises(errors.ExampleCount, match=r"scheme=\{'deberta.*pos_key_proj\.\*': 'shared', '\*': 'flipout'\}"):
        compare(Family(others.deberta, others.tokens, output=logits), gradients=False)
    scheme = {"*pos_*_proj*": "shared", "*": "flipout"}
    assert compare(Family(others.deberta, others.tokens, output=logits, scheme=scheme), gradients=False) < BOUND


def test_embeddings_of_a_contrastive_model() -> None:
    """Its scores mix the examples; what it scores does not."""
    import transformers as hf

    parts: dict[str, Any] = {
        "text_config": {**others._TEXT, "eos_token_id": 2, "bos_token_id": 1},
        "vision_config": others._IMAGE,
    }
    config = hf.CLIPConfig(**parts, projection_dim=8)

    def both(examples: int) -> Any:
        return {**others.images(examples), **others.tokens(examples)}

    for part in ("text_embeds", "image_embeds"):
        family = Family(lambda: hf.CLIPModel(config), both, output=lambda output, part=part: output[part])
        assert compare(family, gradients=False) < BOUND
