"""Every member writes what the plain model with its weights writes, token for token."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from flipout import errors
from flipout.es._decode import Sampling, continue_prompts
from flipout.es._prompts import Prompts, checked_prompts
from flipout.es._seeds import seed_of
from tests.es.language import END, PROMPTS, VOCABULARY, gpt2, llama, member_model, opt, strategy, windowed
from tests.es.toys import strategy as toy


def padded(prompts: list[list[int]] = PROMPTS) -> Prompts:
    return checked_prompts(prompts, 0, VOCABULARY, torch.device("cpu"))


def by_transformers(model: Any, tokens: int) -> Tensor:
    """Return the greedy texts of transformers' own `generate`, padded to `tokens`."""
    ids, mask = padded()
    texts = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False)[
        :, ids.shape[1] :
    ]
    return nn.functional.pad(texts, (0, tokens - texts.shape[1]))


@pytest.mark.parametrize("make", [llama, lambda: llama(tied=False), lambda: llama(torch.float32), gpt2])
@pytest.mark.parametrize("scheme", ["rank_one", "flipout"])
def test_every_member_writes_what_its_weights_write(make: Any, scheme: Any) -> None:
    evolution = strategy(make(), scheme=scheme, antithetic=True, group=4, population=8)
    texts = []
    for population in evolution.ask():
        written = population.generate(PROMPTS, 10)
        texts.append(nn.functional.pad(written.tokens, (0, 10 - written.tokens.shape[-1])))
        for member in range(population.size):
            assert torch.equal(texts[-1][member], by_transformers(member_model(population, member), 10))
    assert len(torch.cat(texts).flatten(1).unique(dim=0)) > 1  # members differ


@pytest.mark.parametrize("make", [opt, lambda: windowed("mistral"), lambda: windowed("gemma3")])
def test_learned_positions_folded_tokens_and_windows_of_attention(make: Any) -> None:
    """Texts grow beyond the window, whose cache then drops what is behind it."""
    shown = {"input_ids": torch.tensor([[3, 4, 9], [7, 8, 6], [2, 1, 1]])}
    (population,) = strategy(make(), population=3, example_inputs=shown).ask()
    written = population.generate(PROMPTS, 10, members=2)
    for member in range(population.size):
        expected = by_transformers(member_model(population, member), 10)[:, : written.tokens.shape[-1]]
        assert torch.equal(written.tokens[member], expected)
    assert len(written.tokens.flatten(1).unique(dim=0)) > 1


def test_a_model_that_folds_tokens_needs_a_batch_to_show() -> None:
    (population,) = strategy(opt()).ask()
    with pytest.raises(errors.ExampleCount, match="example_inputs=batch"):
        population.generate(PROMPTS, 4)


@pytest.mark.parametrize("do_sample", [False, True])
def test_logits_that_are_not_finite_are_refused(do_sample: bool) -> None:
    model = llama(torch.float32)
    (population,) = strategy(model, population=2).ask()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.fill_(1e38)
    with pytest.raises(errors.InvalidInput, match=r"logits are not finite, in 6 of 6 texts. Use a smaller std"):
        population.generate(PROMPTS, 4, do_sample=do_sample)


@pytest.mark.parametrize("top_k", [None, 3])
def test_sampled_texts_are_those_of_the_members_weights(top_k: int | None) -> None:
    (population,) = strategy(llama()).ask()
    sampling = Sampling(True, 0.8, top_k)
    written = population.generate(PROMPTS, 10, do_sample=True, temperature=0.8, top_k=top_k)
    generator = torch.Generator().manual_seed(seed_of(0, 0, "sampling"))
    uniform = torch.rand(3, 10, generator=generator, dtype=torch.float64)
    for member in range(population.size):
        alone = continue_prompts(member_model(population, member), padded(), 10, sampling, uniform, [END], 0)
        assert torch.equal(nn.functional.pad(alone, (0, 10 - alone.shape[1])), written.tokens[member])
    assert not torch.equal(written.tokens, population.generate(PROMPTS, 10).tokens)


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits, count = torch.tensor([1.0, -0.5, 0.2, 2.0]), 40_000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    drawn = Sampling(True, 0.5, 3).next_tokens(logits.expand(count, 4), uniform)
    expected = (logits[[0, 2, 3]] / 0.5).softmax(0)
    found = drawn.bincount(minlength=4)[[0, 2, 3]] / count
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("members", [1, 4, 6, 100])
def test_chunks_of_members_change_nothing(members: int) -> None:
    """Also if the population is no multiple of a chunk."""
    (population,) = strategy(llama(), population=7).ask()
    whole, parts = population.generate(PROMPTS, 8), population.generate(PROMPTS, 8, members=members)
    assert torch.equal(whole.tokens, parts.tokens)
    assert torch.equal(whole.lengths, parts.lengths)


def test_memory_is_bounded_by_the_chunk() -> None:
    model, rows = llama(), []
    (population,) = strategy(model).ask()
    model.model.register_forward_pre_hook(
        lambda m, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    population.generate(PROMPTS, 4, members=2)
    assert set(rows) == {6}  # two members × three prompts


def test_texts_end_and_then_the_call_ends() -> None:
    model = llama()
    (population,) = strategy(model, population=3).ask()
    free = population.generate(PROMPTS, 12, eos_token_id=[])
    assert free.lengths.tolist() == [[12] * 3] * 3
    end = int(free.tokens[0, 0, 2])
    calls: list[int] = []
    model.model.register_forward_pre_hook(lambda m, args: calls.append(1))
    written = population.generate(PROMPTS, 12, eos_token_id=end, pad_token_id=0)
    for member, prompt in torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist():
        length, tokens = int(written.lengths[member, prompt]), written.tokens[member, prompt]
        assert torch.equal(tokens[:length], free.tokens[member, prompt, :length])
        assert end not in tokens[: length - 1]
        assert bool((tokens[length:] == 0).all())
        assert length == 12 or int(tokens[length - 1]) == end
    assert len(calls) == written.tokens.shape[-1] == int(written.lengths.max())


def test_end_tokens_in_every_form() -> None:
    (population,) = strategy(llama(), population=3).ask()
    end = int(population.generate(PROMPTS, 12, eos_token_id=[]).tokens[0, 0, 2])
    expected = population.generate(PROMPTS, 12, eos_token_id=end).lengths
    assert int(expected.min()) < 12
    for form in (torch.tensor(end), torch.tensor([end]), np.int64(end), np.array([end]), {end}, [np.int64(end)]):
        assert torch.equal(population.generate(PROMPTS, 12, eos_token_id=form).lengths, expected)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.InvalidArgument, match="eos_token_id='</s>'"):
        population.generate(PROMPTS, 12, eos_token_id="</s>")  # pyright: ignore[reportArgumentType]


def test_prompts_as_a_tensor_a_tokenizer_and_texts() -> None:
    class Tokenizer:
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return " ".join(str(i) for i in ids if not (skip_special_tokens and i == END))

    (population,) = strategy(llama()).ask()
    from_lists = population.generate(PROMPTS, 5)
    ids, mask = padded()
    assert torch.equal(from_lists.tokens, population.generate({"input_ids": ids, "attention_mask": mask}, 5).tokens)
    alone = population.generate(torch.tensor(PROMPTS[1:2]), 5).tokens
    assert torch.equal(from_lists.tokens[:, 1, : alone.shape[-1]], alone[:, 0])
    texts = from_lists.texts(Tokenizer())
    assert [len(texts), len(texts[0])] == [6, 3]
    assert texts[2][1].split() == [
        str(i) for i in from_lists.tokens[2, 1, : from_lists.lengths[2, 1]].tolist() if i != END
    ]
    assert repr(from_lists).startswith("Generated(6 members × 3 prompts, up to")


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "beams": ({"num_beams": 4}, errors.InvalidArgument, r"num_beams=4.*reorders the rows.*greedy"),
    "another option": ({"repetition_penalty": 2.0}, errors.InvalidArgument, "does not take this option"),
    "no token": ({"max_new_tokens": 0}, errors.InvalidArgument, "max_new_tokens=0"),
    "no member": ({"members": 0}, errors.InvalidArgument, "members=0"),
    "cold": ({"do_sample": True, "temperature": 0.0}, errors.InvalidArgument, "do_sample=False"),
    "an idle temperature": ({"temperature": 0.5}, errors.InvalidArgument, "without do_sample=True"),
    "a bad top_k": ({"do_sample": True, "top_k": 0}, errors.InvalidArgument, "top_k=0"),
    "a long prompt": ({"prompts": [[3] * 30]}, errors.InvalidInput, "has 30 tokens and 4 more .* has 32.*≤ 2"),
    "text": ({"prompts": "hello"}, errors.InvalidInput, "Tokenise text first"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    options, kind, said = WRONG[name]
    (population,) = strategy(llama()).ask()
    with pytest.raises(kind, match=said):
        population.generate(**{"prompts": PROMPTS, "max_new_tokens": 4, **options})


def test_models_that_do_not_write() -> None:
    (population,) = toy(None).ask()
    with pytest.raises(errors.InvalidInput, match="no causal language model of transformers"):
        population.generate(PROMPTS, 4)
    model = llama()
    model.generation_config.num_beams = 3
    (population,) = strategy(model).ask()
    with pytest.raises(errors.InvalidArgument, match="num_beams=3"):
        population.generate(PROMPTS, 4)
    model.generation_config.num_beams = 1
    model.config.is_encoder_decoder = True
    with pytest.raises(errors.Unsupported, match="encoder"):
        population.generate(PROMPTS, 4)


def test_a_model_without_a_cache_is_refused() -> None:
    """GPT-1 has none, and Mamba's has another name."""
    config = OpenAIGPTConfig(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=4, n_positions=32)
    (population,) = strategy(OpenAIGPTLMHeadModel(config).eval()).ask()
    with pytest.raises(errors.Unsupported, match="OpenAIGPTLMHeadModel returns no cache"):
        population.generate(PROMPTS, 4, eos_token_id=[], pad_token_id=0)


def test_a_population_of_an_earlier_generation_is_refused() -> None:
    evolution = strategy(llama())
    (population,) = evolution.ask()
    evolution.tell(torch.arange(6.0))
    with pytest.raises(errors.InvalidInput, match="belongs to generation 0"):
        population.generate(PROMPTS, 4)
