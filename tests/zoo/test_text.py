"""transformers' language models: each against the loop over its examples, or refused with a message that helps."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors

from .oracle import Family, compare
from .text import family, model, tokens

EXACT, SINGLE = 1e-12, 1e-7  # fp64 throughout; with a norm or a scan that computes in fp32
EXPERTS_SHARED = {"*experts*": "shared", "*": "flipout"}


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("Llama", EXACT),
        ("Qwen2", EXACT),
        ("Qwen3", EXACT),
        ("Gemma", SINGLE),
        ("Gemma3Text", SINGLE),
        ("GPT2", EXACT),
        ("Bert", EXACT),
        ("T5", EXACT),
        ("Bart", EXACT),
        ("Mamba2", SINGLE),
    ],
)
def test_a_language_model_is_its_examples_alone(name: str, bound: float) -> None:
    assert compare(family(name)) < bound


STATE_SPACE = ["*proj.weight", "*conv1d.weight", "lm_head.weight"]


def test_a_state_space_model_reads_the_weights_of_its_layers() -> None:
    """It calls two of its five layers, and reads the weights of the others."""
    assert compare(family("Mamba", where=STATE_SPACE)) < SINGLE
    with pytest.warns(
        errors.LeftPlain, match=r"MambaMixer: backbone\.layers\.0\.mixer\.A_log.*\n.*where=\['\*\.A_log'"
    ):
        flipout.perturb(model("Mamba"), flipout.Gaussian(0.1))


@pytest.mark.parametrize("scheme", ["flipout", "independent", "shared"])
@pytest.mark.parametrize("name", ["Llama", "Gemma3Text", "Mamba", "Mamba2"])
def test_every_parameter_can_be_noisy(name: str, scheme: str) -> None:
    """Norms, scaled embeddings that are tied to the head, and A_log of a state space included."""
    assert compare(family(name, where="*", scheme=scheme)) < SINGLE


@pytest.mark.parametrize("name", ["GPT2", "Bert", "T5"])
def test_under_shared_every_parameter_can_be_noisy(name: str) -> None:
    """Position tables, which all examples look up together, included."""
    assert compare(family(name, where="*", scheme="shared")) < EXACT


def test_tokens_that_are_folded_into_the_batch_are_refused() -> None:
    with pytest.raises(errors.ExampleCount, match=r"fc1 \(Linear\): the input has 21 examples, but this draw has 3"):
        compare(family("OPT"))
    assert compare(family("OPT", where="*self_attn*weight")) < EXACT
    assert compare(family("OPT", scheme="shared")) < EXACT


@pytest.mark.parametrize("where", [None, "*fc?.weight", "*"])
def test_a_batch_shows_how_tokens_are_folded(where: Any) -> None:
    """OPT's feed-forward layers see 21 rows for 3 examples of 7 tokens."""
    shown = {"example_inputs": tokens(3)}
    options = {"scheme": {"*embed_positions*": "shared", "*": "flipout"}} if where == "*" else {}
    assert compare(family("OPT", where=where, options=shown, **options)) < EXACT


def test_experts_are_left_out_and_named() -> None:
    with pytest.warns(errors.LeftPlain) as caught:
        flipout.perturb(model("Mixtral"), flipout.Gaussian(0.1))
    (said,) = [str(warning.message) for warning in caught]
    assert (
        "transformers.models.mixtral.modeling_mixtral.MixtralExperts: model.layers.0.mlp.experts.gate_up_proj" in said
    )
    assert "where=['*.gate.weight', '*.gate_up_proj', '*.down_proj']" in said


def test_experts_for_each_example_are_refused_and_shared_ones_right() -> None:
    where = ["*_proj*", "lm_head*"]
    with pytest.raises(errors.UnservedRead, match=r"experts\.gate_up_proj: linear at .*modeling_mixtral\.py:\d+ reads"):
        compare(family("Mixtral", where=where))
    assert compare(family("Mixtral", where=where, scheme=EXPERTS_SHARED)) < EXACT


@pytest.mark.parametrize("name", ["Llama", "GPT2", "Mamba"])
def test_training_and_eval(name: str) -> None:
    plain, x = model(name), tokens(3)
    means = plain.eval()(**x).logits
    noisy = flipout.perturb(plain, flipout.MeanField(std=0.01), where=STATE_SPACE if name == "Mamba" else None)
    torch.testing.assert_close(noisy(**x).logits, means)
    noisy.train()
    loss = noisy(**x, labels=x["input_ids"]).loss
    loss.backward()
    spreads = {n: p for n, p in noisy.named_parameters() if n.endswith("_rho")}
    assert spreads
    assert all(p.grad is not None and bool(p.grad.any()) for p in spreads.values())


@pytest.mark.parametrize("name", ["Llama", "Mamba"])
def test_generation_with_a_cache_sees_the_held_weights(name: str) -> None:
    where = STATE_SPACE if name == "Mamba" else None
    noisy: Any = flipout.perturb(model(name), flipout.MultiplicativeGaussian(0.3), where=where).double().eval()
    x = tokens(3)["input_ids"]
    with flipout.hold(noisy, seed=1):
        cached, whole = (noisy.generate(x, max_new_tokens=4, do_sample=False, use_cache=use) for use in (True, False))
    assert torch.equal(cached, whole)


def refused_or_right(family: Family) -> str:
    """Return what became of a family: right, refused or left out. Fail if it is silently wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            difference = compare(family, gradients=False)
        except errors.FlipoutError as error:
            return type(error).__name__
    assert difference < SINGLE
    return "right"


def test_a_model_of_layers_that_read_each_other() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(31, 8)
            self.head = nn.Linear(8, 8)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(input_ids)) @ self.embed.weight.T

    assert refused_or_right(Family(Tied, tokens, where="*")) == "right"
