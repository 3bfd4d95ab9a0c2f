"""`bayesian_lora` on every kind of LoRA layer, against plain PEFT run for each example alone with its own A."""

import copy
import pickle
from typing import Any

import peft
import pytest
import torch
import transformers
from torch import nn

import flipout
from flipout import errors

from .models import BOUND, adapted, against_loop, bayesian, randomise, tokens

pytestmark = pytest.mark.filterwarnings("ignore:LoRA adapter added to ConvNd layer with groups")


class Images(nn.Module):
    """Convolutions of one, two and three dimensions."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.planes = nn.Conv2d(2, 4, 3, padding=1, groups=groups)
        self.lines = nn.Conv1d(4, 4, 3, padding=1)
        self.volumes = nn.Conv3d(1, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lines(self.planes(x).flatten(2).tanh())
        return self.volumes(y.unflatten(2, (4, 4)).unsqueeze(1)).flatten(1)


def images(groups: int = 1) -> Any:
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, target_modules=["planes", "lines", "volumes"])
    model = peft.get_peft_model(Images(groups), config)  # pyright: ignore[reportArgumentType]
    randomise(model)
    return model.double().eval()


@pytest.mark.parametrize("scheme", ["flipout", "shared", "independent"])
def test_linear_layers(scheme: Any) -> None:
    assert against_loop(adapted(), tokens(), scheme=scheme) < BOUND


@pytest.mark.parametrize("which", ["B", "AB"])
def test_the_other_matrix(which: Any) -> None:
    assert against_loop(adapted(), tokens(), which=which) < BOUND


def test_conv1d_of_transformers() -> None:
    assert against_loop(adapted("GPT2", target_modules=["c_attn"], fan_in_fan_out=True), tokens()) < BOUND


@pytest.mark.parametrize("which", ["A", "AB"])
def test_an_embedding(which: Any) -> None:
    assert against_loop(adapted(target_modules=["embed_tokens", "q_proj"]), tokens(), which=which) < BOUND


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(groups: int) -> None:
    assert against_loop(images(groups), {"x": torch.randn(3, 2, 4, 4).double()}) < BOUND


def test_rslora_and_pissa_as_they_come() -> None:
    assert against_loop(adapted(use_rslora=True, lora_alpha=3), tokens()) < BOUND
    torch.manual_seed(0)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights="pissa")
    base = peft.get_peft_model(transformers.LlamaForCausalLM(tiny()), config)  # pyright: ignore[reportArgumentType]
    assert against_loop(base.double().eval(), tokens()) < BOUND


@pytest.mark.parametrize(
    "options",
    [
        {"lora_bias": True},
        {"bias": "all"},
        {"trainable_token_indices": [3, 4]},
        {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"v_proj": 7}},
        {"layer_replication": [[0, 2], [0, 2]]},
        {"target_modules": "all-linear", "exclude_modules": ["k_proj"], "init_lora_weights": "orthogonal"},
        {"lora_dropout": 0.3, "layers_to_transform": [1]},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.filterwarnings("ignore:.lora_bias=True. was passed but")
def test_other_options_of_peft_as_they_come(options: dict[str, Any]) -> None:
    assert against_loop(adapted(**options), tokens()) < BOUND


def test_an_encoder_and_decoder() -> None:
    plain = adapted("T5", target_modules=["q", "v"], task_type="SEQ_2_SEQ_LM")
    assert against_loop(plain, {**tokens(), "decoder_input_ids": tokens(length=4)["input_ids"]}) < BOUND


def tiny(**options: Any) -> transformers.LlamaConfig:
    sizes = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    return transformers.LlamaConfig(**{**sizes, "num_attention_heads": 4, "num_key_value_heads": 2, **options})


def test_modules_to_save_stay_plain() -> None:
    model = adapted(modules_to_save=["lm_head"])
    assert against_loop(model, tokens()) < BOUND
    converted = flipout.peft.bayesian_lora(model)
    assert all("lm_head" not in row.parameter for row in flipout.summary(converted).rows if row.noise)


def test_a_model_that_folds_tokens_needs_a_batch() -> None:
    plain = adapted("OPT", target_modules=["fc1"])
    assert against_loop(plain, tokens(), example_inputs=tokens()) < BOUND
    with pytest.raises(errors.ExampleCount, match="example_inputs"):
        against_loop(plain, tokens())


def test_the_mean_is_plain_lora() -> None:
    plain, inputs = adapted(), tokens()
    copied = copy.deepcopy(plain)
    model = flipout.peft.bayesian_lora(copied)
    assert model is copied
    assert isinstance(model, type(plain))
    assert torch.equal(model(**inputs).logits, plain(**inputs).logits)


def test_the_summary_shows_the_posterior() -> None:
    model = bayesian()
    noisy = [row for row in flipout.summary(model).rows if row.noise]
    assert len(noisy) == 4
    assert all(".lora_A.default.weight" in row.parameter and row.scheme == "Flipout()" for row in noisy)
    assert "MeanField(std=0.2, prior=Normal(" in noisy[0].noise


def test_a_training_pass_draws_for_each_sequence_and_reaches_the_spreads() -> None:
    model, inputs = bayesian().train(), tokens()
    first, second = model(**inputs).logits, model(**inputs).logits
    assert not torch.equal(first, second)
    same = {"input_ids": inputs["input_ids"][:1].expand(2, -1)}
    a, b = model(**same).logits
    assert not torch.allclose(a, b)
    first.sum().backward()
    spreads = [p.grad for name, p in model.named_parameters() if name.endswith("weight_rho")]
    assert len(spreads) == 4
    assert all(grad is not None and bool(grad.abs().sum() > 0) for grad in spreads)


@pytest.mark.parametrize("enter", ["base_model", "get_base_model"])
def test_the_modules_inside_are_called_under_one_draw_too(enter: str) -> None:
    model, inputs = bayesian(), tokens()
    inside = model.base_model if enter == "base_model" else model.get_base_model()
    with flipout.hold(model, seed=3):
        assert torch.equal(inside(**inputs).logits, model(**inputs).logits)
    torch.manual_seed(0)
    expected = model.train()(**inputs).logits
    torch.manual_seed(0)
    assert torch.equal(inside(**inputs).logits, expected)


def test_tokens_are_not_generated_from_the_cache_of_another_draw() -> None:
    model, inputs = bayesian(), tokens()
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "use_cache": True}
    with flipout.sampling(model), pytest.raises(errors.StaleCache, match=r"from a cache .* flipout\.hold\(model\)"):
        model.get_base_model().generate(**inputs, **options)
    with flipout.hold(model, seed=1):
        held = model.generate(**inputs, **options)
        again = model.generate(**inputs, **{**options, "use_cache": False})
    assert torch.equal(held, again)
    model.generate(**inputs, **options)  # the mean


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(copied: Any) -> None:
    model, inputs = bayesian(target_modules=["q_proj", "embed_tokens"]), tokens()
    with flipout.hold(model, seed=1):
        expected = model(**inputs).logits
    again = copied(model)
    assert type(again) is type(model)
    with flipout.hold(again, seed=1):
        assert torch.equal(again(**inputs).logits, expected)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"std": 0.0}, r"std=0\.0"),
        ({"prior_std": float("nan")}, "prior_std=nan"),
        ({"which": "C"}, "which='C'"),
        ({"scheme": "local_reparam"}, "scheme='local_reparam'"),
        ({"adapter": "other"}, r"expected one of the model's adapters, \['default'\]"),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    model = adapted()
    with pytest.raises(errors.InvalidArgument, match=match):
        flipout.peft.bayesian_lora(model, **options)
    assert not any(row.noise for row in flipout.summary(model).rows)


def test_a_second_conversion_is_refused() -> None:
    with pytest.raises(errors.AlreadyPerturbed, match="lora_A"):
        flipout.peft.bayesian_lora(bayesian())


def test_a_model_without_adapters_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"peft\.get_peft_model"):
        flipout.peft.bayesian_lora(nn.Linear(2, 2))
