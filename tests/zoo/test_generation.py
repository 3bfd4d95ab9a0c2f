"""transformers' `generate`: one draw for a whole sequence, and for all sequences of one prompt."""

import copy
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import Tensor, nn

import flipout
from flipout import errors

from .oracle import weights_by_example
from .text import model, tokens

PROMPTS = 3
NEW = {"max_new_tokens": 4, "min_new_tokens": 4, "return_dict_in_generate": True, "output_scores": True}
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient:FutureWarning")  # peft asks what transformers deprecates
STATE_SPACE = ["*proj.weight", "*conv1d.weight", "lm_head.weight"]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


def pair(name: str) -> tuple[Any, Any]:
    """Return a plain model, and a perturbed copy of it."""
    torch.manual_seed(0)
    plain: Any = model(name).double().eval()
    options: dict[str, Any] = {"example_inputs": tokens(2)} if name == "OPT" else {}
    if name == "Mamba":
        options["where"] = STATE_SPACE
    noisy = flipout.perturb(copy.deepcopy(plain), flipout.MultiplicativeGaussian(0.3), **options)
    return plain, noisy


def prompt_by_prompt(plain: Any, weights: list[dict[str, Tensor]], prompts: Tensor, **options: Any) -> list[Any]:
    """Generate for each prompt alone, from the plain model under the weights of that prompt."""
    outputs = []
    for prompt, changed in zip(prompts, weights, strict=True):
        alone = copy.deepcopy(plain)
        alone.load_state_dict(changed, strict=False)
        outputs.append(alone.generate(prompt[None], **NEW, **options))
    return outputs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {"use_cache": False}),
        ("Llama", {"use_cache": True}),
        ("Llama", {"num_beams": 3}),
        ("Llama", {"num_beams": 3, "use_cache": False}),
        ("Llama", {"num_beams": 4, "num_return_sequences": 2}),
        ("GPT2", {"num_beams": 3}),
        ("OPT", {"num_beams": 3}),  # folds tokens into the rows
        # It reads the weights of layers that it does not call. Slow: torch's grouped convolutions in fp64.
        pytest.param("Mamba", {"num_beams": 2}, marks=pytest.mark.slow),
        ("T5", {"use_cache": True}),  # calls the encoder once, before it repeats the rows
        ("T5", {"num_beams": 3}),
        ("Bart", {"num_beams": 4, "num_return_sequences": 2}),
    ],
    ids=str,
)
def test_a_prompt_is_generated_under_its_own_weights(name: str, options: dict[str, Any]) -> None:
    plain, noisy = pair(name)
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        together = noisy.generate(prompts, do_sample=False, **NEW, **options)
        weights = weights_by_example(noisy)
    assert len(weights) == PROMPTS
    alone = prompt_by_prompt(plain, weights, prompts, do_sample=False, **options)
    assert torch.equal(together.sequences, torch.cat([output.sequences for output in alone]))
    if "num_beams" in options:
        scores = torch.cat([output.sequences_scores for output in alone])
        torch.testing.assert_close(together.sequences_scores, scores, rtol=1e-6, atol=0.0)


def test_beams_under_one_weight_for_all_prompts() -> None:
    """Nobody counts examples there, so the rows of the first token set no number."""
    plain, _ = pair("Llama")
    noisy = flipout.perturb(copy.deepcopy(plain), flipout.MultiplicativeGaussian(0.3), scheme="shared")
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        together = noisy.generate(prompts, do_sample=False, num_beams=2, **NEW)
        weights = weights_by_example(noisy)[:1]
    alone = prompt_by_prompt(plain, weights * PROMPTS, prompts, do_sample=False, num_beams=2)
    scores = torch.cat([output.sequences_scores for output in alone])
    torch.testing.assert_close(together.sequences_scores, scores, rtol=1e-6, atol=0.0)


def test_returned_sequences_of_a_prompt_share_its_weights() -> None:
    plain, noisy = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        together = noisy.generate(prompts, do_sample=True, num_return_sequences=2, output_logits=True, **NEW)
        weights = weights_by_example(noisy)
    assert len(weights) == PROMPTS
    for n, changed in enumerate(weights):
        alone = copy.deepcopy(plain)
        alone.load_state_dict(changed, strict=False)
        for sequence in (2 * n, 2 * n + 1):
            logits = alone(together.sequences[sequence : sequence + 1]).logits[0, -5:-1]
            actual = torch.stack([step[sequence] for step in together.logits])
            torch.testing.assert_close(actual, logits.float())  # transformers keeps them in fp32


@pytest.mark.parametrize("proposed", ["assistant", "lookup"])
def test_proposed_tokens_are_checked_under_the_held_weights(proposed: str) -> None:
    """Assisted decoding gives what greedy decoding gives, whoever proposes the tokens."""
    _, noisy = pair("Llama")
    prompt = tokens(1)["input_ids"].repeat(1, 2)
    plain: Any = model("Llama").double().eval()
    options = {"assistant_model": plain} if proposed == "assistant" else {"prompt_lookup_num_tokens": 2}
    with flipout.hold(noisy, seed=1):
        greedy = noisy.generate(prompt, do_sample=False, max_new_tokens=6)
        assisted = noisy.generate(prompt, do_sample=False, max_new_tokens=6, **options)
    assert torch.equal(greedy, assisted)


@pytest.mark.parametrize("name", ["Llama", "T5"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_fresh_draw_for_every_token_is_refused(name: str, use_cache: bool) -> None:
    _, noisy = pair(name)
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.sampling(noisy), pytest.raises(errors.StaleCache, match=r"with flipout\.hold\(model\): model\.gener"):
        noisy.generate(prompts, max_new_tokens=4, use_cache=use_cache)
    with pytest.raises(errors.StaleCache, match="in training mode"):
        noisy.train().generate(prompts, max_new_tokens=4, use_cache=use_cache)
    noisy.eval().generate(prompts, max_new_tokens=4, use_cache=use_cache)  # the mean weights


def decode(noisy: Any, prompts: Tensor, steps: int = 3) -> Tensor:
    """Decode greedily, in a loop written by hand."""
    out, cache = [prompts], None
    for _ in range(steps):
        returned = noisy(out[-1], past_key_values=cache, use_cache=True)
        cache = returned.past_key_values
        out.append(returned.logits[:, -1:].argmax(-1))
    return torch.cat(out, 1)


def test_a_loop_by_hand_is_right_under_hold_and_else_refused() -> None:
    _, noisy = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        assert torch.equal(decode(noisy, prompts), noisy.generate(prompts, max_new_tokens=3, min_new_tokens=3))
    with flipout.sampling(noisy), pytest.raises(errors.StaleCache, match="another draw of the weights, but this call"):
        decode(noisy, prompts)
    with pytest.raises(errors.StaleCache, match="DynamicCache that was written under another draw"):
        decode(noisy.train(), prompts)


@torch.no_grad()
def test_a_cache_belongs_to_its_draw() -> None:
    _, noisy = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        written = noisy(prompts, use_cache=True).past_key_values
    with flipout.hold(noisy, seed=1):  # the same draw again
        noisy(prompts[:, :1], past_key_values=copy.deepcopy(written))
    with flipout.hold(noisy, seed=2), pytest.raises(errors.StaleCache, match="but this call has a new one"):
        noisy(prompts[:, :1], past_key_values=copy.deepcopy(written))
    with pytest.raises(errors.StaleCache, match="but this call has the mean weights"):
        noisy(prompts[:, :1], None, None, written)
    with flipout.hold(noisy, seed=2):
        written.crop(-8)
        noisy(prompts[:, :1], past_key_values=written)  # nothing is left in it


def test_a_static_cache_is_reset_between_draws() -> None:
    _, noisy = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    for seed in (1, 2):
        with flipout.hold(noisy, seed=seed):
            kept, grown = (
                noisy.generate(prompts, max_new_tokens=3, do_sample=False, cache_implementation=kind)
                for kind in ("static", None)
            )
        assert torch.equal(kept, grown)


def test_rows_that_are_told_have_to_keep_a_prompt_together() -> None:
    _, noisy = pair("Llama")
    prompts = tokens(4)["input_ids"]
    with flipout.hold(noisy, seed=1):
        expected = noisy.generate(prompts, num_beams=2, max_new_tokens=3)
    with flipout.hold(noisy, seed=1, rows=2):
        assert torch.equal(noisy.generate(prompts, num_beams=2, max_new_tokens=3), expected)
    with flipout.hold(noisy, seed=1, rows=4):  # two prompts with two beams each
        shared = noisy.generate(prompts, num_beams=2, max_new_tokens=3)
        assert len(weights_by_example(noisy)) == 2
    for member in (0, 1):
        with flipout.hold(noisy, seed=1, first=member, rows=4):
            alone = noisy.generate(prompts[2 * member :][:2], num_beams=2, max_new_tokens=3)
        assert torch.equal(alone, shared[2 * member :][:2])
    with flipout.hold(noisy, seed=1, rows=4), pytest.raises(errors.ExampleCount, match="has 3 sequences for each prom"):
        noisy.generate(prompts, num_beams=3, max_new_tokens=3)


def test_a_draw_with_other_examples_is_refused() -> None:
    _, noisy = pair("Llama")
    with flipout.hold(noisy, seed=1):
        noisy(**tokens(6))
        with pytest.raises(errors.ExampleCount, match=r"generate\(…\) has 2 prompts, but the held draw has 6 examples"):
            noisy.generate(tokens(2)["input_ids"], num_beams=3, max_new_tokens=3)


@pytest.mark.parametrize("place", ["inside", "around"])
def test_the_root_need_not_be_the_model_that_generates(place: str) -> None:
    """PEFT's `generate` calls the model inside of it. A root may be the body alone."""
    plain, _ = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    noisy = copy.deepcopy(plain)
    if place == "inside":
        flipout.perturb(noisy.model, flipout.MultiplicativeGaussian(0.3))
    else:
        noisy = peft.get_peft_model(noisy, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
        flipout.perturb(noisy, flipout.MultiplicativeGaussian(0.3)).eval()
    with flipout.hold(noisy, seed=1):
        together = noisy.generate(input_ids=prompts, num_beams=2, do_sample=False, **NEW)
        assert len(weights_by_example(noisy)) == PROMPTS
        first = noisy.generate(input_ids=prompts, do_sample=False, **NEW)
    assert together.sequences.shape == first.sequences.shape
    with flipout.hold(noisy, seed=1):  # a prompt alone sees the weights of the first example
        alone = noisy.generate(input_ids=prompts[:1], num_beams=2, do_sample=False, **NEW)
    torch.testing.assert_close(alone.sequences_scores, together.sequences_scores[:1])
    with flipout.sampling(noisy), pytest.raises(errors.StaleCache):
        noisy.generate(input_ids=prompts, max_new_tokens=2)


def test_a_forward_pass_that_generates_has_one_draw() -> None:
    class Answer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm = pair("Llama")[0]

        def forward(self, prompts: Tensor) -> Tensor:
            return self.lm.generate(prompts, num_beams=2, do_sample=False, max_new_tokens=3, min_new_tokens=3)

    noisy = flipout.perturb(Answer(), flipout.MultiplicativeGaussian(0.3)).eval()
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.sampling(noisy):
        torch.manual_seed(5)
        fresh = noisy(prompts)
    torch.manual_seed(5)
    with flipout.hold(noisy):
        assert torch.equal(noisy(prompts), fresh)
        assert len(weights_by_example(noisy)) == PROMPTS


def test_beams_are_found_after_a_pass_with_as_many_examples() -> None:
    """A layer remembers its last call, whose rows were examples. The rows of this one are beams."""

    class Answer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm = pair("Llama")[0]

        def forward(self, ids: Tensor, beams: int) -> Tensor:
            if not beams:
                return self.lm(ids).logits
            return self.lm.generate(ids, num_beams=beams, do_sample=False, max_new_tokens=3, min_new_tokens=3)

    noisy = flipout.perturb(Answer(), flipout.MultiplicativeGaussian(0.3), where="*q_proj.weight").train()
    prompts = tokens(PROMPTS)["input_ids"]
    written = []
    for earlier in (None, tokens(2 * PROMPTS)["input_ids"]):
        if earlier is not None:
            for _ in range(2):
                noisy(earlier, 0)
        torch.manual_seed(5)
        written.append(noisy(prompts, 2))
        query: Any = noisy.lm.model.layers[0].self_attn.q_proj
        assert query.flipout.roots[0][0].running.examples == PROMPTS
    assert torch.equal(*written)


@pytest.mark.parametrize("part", ["model.layers.0.mlp", "model.layers.0.mlp.up_proj"])
def test_a_part_that_takes_one_tensor_is_the_root(part: str) -> None:
    """It sees no cache among its arguments."""
    noisy, _ = pair("Llama")
    flipout.perturb(noisy.get_submodule(part), flipout.MultiplicativeGaussian(0.3))
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.sampling(noisy), pytest.raises(errors.StaleCache, match="under a fresh draw for every token"):
        noisy.generate(prompts, max_new_tokens=3)
    with pytest.raises(errors.StaleCache, match="in training mode"):
        noisy.train().generate(prompts, max_new_tokens=3)
    noisy.eval()
    with flipout.hold(noisy, seed=1):
        noisy(prompts.repeat(2, 1))
        with pytest.raises(errors.ExampleCount, match="3 prompts, but the held draw has 6 examples"):
            noisy.generate(prompts, num_beams=2, max_new_tokens=3)


@pytest.mark.slow
def test_a_compiled_model_has_to_be_told_of_beams() -> None:
    _, noisy = pair("Llama")
    prompts = tokens(PROMPTS)["input_ids"]
    with flipout.hold(noisy, seed=1):
        expected = noisy.generate(prompts, num_beams=2, do_sample=False, **NEW)
    noisy.compile(backend="eager")
    with flipout.hold(noisy, seed=1, rows=2):
        told = noisy.generate(prompts, num_beams=2, do_sample=False, **NEW)
    torch.testing.assert_close(told.sequences_scores, expected.sequences_scores)
    torch.compiler.reset()
    with flipout.hold(noisy, seed=1), pytest.raises(Exception, match=r"flipout\.hold\(model, rows=2\)"):
        noisy.generate(prompts, num_beams=2, do_sample=False, **NEW)
