"""A converted model meets the calls of other libraries: it is followed, or refused with a message that helps."""

import copy
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import flipout
from flipout import errors
from flipout.bayes import Normal, kl

from .oracle import weights_by_example
from .text import OPTIONS, model, pairs, tokens

LEARNED = flipout.MeanField(relative=0.1, prior=Normal(0.5, 2.0))
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


class BayesLlama(transformers.LlamaForCausalLM):
    """Perturbed in its own constructor, which `from_pretrained` calls on the meta device."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        flipout.perturb(self, flipout.MeanField(relative=0.1, prior=Normal(0.5, 2.0)))


def bayes_llama() -> Any:
    torch.manual_seed(0)
    built: Any = BayesLlama(transformers.LlamaConfig(**OPTIONS["Llama"]))
    return built.eval()


def companions(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if "_rho" in name or "_prior_" in name}


def test_learned_spreads_are_loaded(tmp_path: Path) -> None:
    saved = bayes_llama()
    with torch.no_grad():
        for name, parameter in saved.named_parameters():
            if name.endswith("_rho"):
                parameter.normal_(-3.0)
    saved.save_pretrained(tmp_path)
    loaded = BayesLlama.from_pretrained(tmp_path)
    for name, value in companions(loaded).items():
        assert torch.equal(value, saved.state_dict()[name]), name
    with flipout.hold(saved, seed=1), flipout.hold(loaded, seed=1):
        x = tokens(3)
        assert torch.equal(saved(**x).logits, loaded(**x).logits)
    assert torch.equal(kl(saved), kl(loaded))
    assert torch.equal(kl(copy.deepcopy(loaded)), kl(loaded))


def test_spreads_that_a_checkpoint_lacks_get_their_initial_values(tmp_path: Path) -> None:
    plain: Any = model("Llama")
    plain.save_pretrained(tmp_path)
    loaded = BayesLlama.from_pretrained(tmp_path)
    expected = flipout.perturb(plain, LEARNED)
    assert companions(loaded).keys() == companions(expected).keys() != set()
    for name, value in companions(loaded).items():
        assert torch.equal(value, expected.state_dict()[name]), name
    assert torch.equal(kl(loaded), kl(expected))


def test_a_head_that_a_checkpoint_lacks_gets_its_spread_too(tmp_path: Path) -> None:
    class Scorer(transformers.LlamaForSequenceClassification):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            flipout.perturb(self, flipout.MeanField(std=0.1))

    plain: Any = model("Llama")
    plain.save_pretrained(tmp_path)
    loaded = Scorer.from_pretrained(tmp_path)
    head: Any = loaded.score
    spread = torch.nn.functional.softplus(head.weight_rho.detach())
    torch.testing.assert_close(spread, torch.full_like(spread, 0.1))
    assert head.weight.std() < 1


def test_weights_that_are_tied_after_loading_are_refused(tmp_path: Path) -> None:
    class BayesGPT2(transformers.GPT2LMHeadModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            flipout.perturb(self, flipout.MeanField())

    config = transformers.GPT2Config(**OPTIONS["GPT2"])
    BayesGPT2(config)  # here they are tied in time
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(
        errors.Unsupported, match=r"lm_head\.weight will be tied .* flipout\.perturb\(Model\.from_pretr"
    ):
        BayesGPT2.from_pretrained(tmp_path)


def alone(noisy: Any, weights: list[dict[str, Tensor]], inputs: dict[str, Tensor]) -> Tensor:
    """Return the logits of each example from the plain model under the weights of that example."""
    logits = []
    for n, changed in enumerate(weights):
        plain = flipout.freeze(copy.deepcopy(noisy))
        plain.load_state_dict(changed, strict=False)
        logits.append(plain(**{name: value[n : n + 1] for name, value in inputs.items()}).logits)
    return torch.cat(logits)


@pytest.mark.parametrize(("name", "size"), [("GPT2", 40), ("Bart", 29)])
@torch.no_grad()
def test_a_tied_table_may_be_resized(name: str, size: int) -> None:
    noisy: Any = flipout.perturb(model(name).double(), flipout.Gaussian(0.1)).eval()
    inputs = {key: value.clamp(max=28) for key, value in (pairs(3) if name == "Bart" else tokens(3)).items()}
    for mode in (True, False):  # the layers have remembered the size
        noisy.train(mode)(**inputs)
    noisy.resize_token_embeddings(size, mean_resizing=False)
    noisy.train()(**inputs)
    with flipout.hold(noisy.eval(), seed=1):
        actual, weights = noisy(**inputs).logits, weights_by_example(noisy)
    assert actual.shape[-1] == size
    torch.testing.assert_close(actual, alone(noisy, weights, inputs), rtol=1e-12, atol=1e-12)


def test_a_table_with_a_learned_spread_may_not_be_resized() -> None:
    noisy: Any = flipout.perturb(model("GPT2"), flipout.MeanField())
    noisy(**tokens(3))
    noisy.resize_token_embeddings(40, mean_resizing=False)
    with pytest.raises(
        errors.Unsupported, match=r"shape \(40, 16\), but its weight_rho has shape \(31, 16\)\. Call fl"
    ):
        noisy(**tokens(3))


def test_a_head_that_is_replaced_by_a_plain_one_is_named() -> None:
    noisy: Any = flipout.perturb(model("Llama"), flipout.Gaussian(0.1))
    noisy.resize_token_embeddings(40, mean_resizing=False)
    with pytest.warns(errors.LeftPlain, match=r"replaced by plain ones, which have no noise: lm_head\..*'lm_head\.\*'"):
        noisy(**tokens(3))
    noisy(**tokens(3))  # said once


@pytest.mark.parametrize("order", ["perturbed first", "offloaded first"])
@pytest.mark.parametrize("how", ["cpu_offload", "dispatch_model"])
@torch.no_grad()
def test_offloaded_weights_are_noisy(order: str, how: str) -> None:
    def offload(module: nn.Module) -> nn.Module:
        if how == "cpu_offload":
            return accelerate.cpu_offload(module, execution_device=CPU)
        options: dict[str, Any] = {"main_device": "cpu", "force_hooks": True}
        return accelerate.dispatch_model(module, {"": "cpu"}, **options)

    def perturbed(module: Any) -> Any:
        return flipout.perturb(module, flipout.Gaussian(0.1)).eval()

    plain, x = model("Llama"), tokens(3)
    expected = perturbed(copy.deepcopy(plain))
    if order == "perturbed first":
        noisy: Any = offload(perturbed(copy.deepcopy(plain)))
    else:
        noisy = perturbed(offload(copy.deepcopy(plain)))
    with flipout.hold(noisy, seed=1), flipout.hold(expected, seed=1):
        for _ in range(2):
            assert torch.equal(noisy(**x).logits, expected(**x).logits)
        prompts = x["input_ids"]
        assert torch.equal(noisy.generate(prompts, max_new_tokens=2), expected.generate(prompts, max_new_tokens=2))
    assert torch.equal(flipout.freeze(noisy)(**x).logits, plain.eval()(**x).logits)


def test_a_learned_spread_over_offloaded_weights_is_refused() -> None:
    noisy = flipout.perturb(model("Llama"), LEARNED)
    with flipout.hold(accelerate.cpu_offload(noisy, execution_device=CPU), seed=1):
        noisy(**tokens(3))
    offloaded = accelerate.cpu_offload(model("Llama"), execution_device=CPU)
    with pytest.raises(errors.Unsupported, match=r"accelerate\.cpu_offload\(flipout\.perturb\(model, …\)\)"):
        flipout.perturb(offloaded, LEARNED)


class Quantised(Tensor):
    """Eight bits and a scale in place of a weight, packed as torchao packs them."""

    bits: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, weight: Tensor) -> "Quantised":
        packed = Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        packed.scale = weight.abs().max() / 127
        packed.bits = (weight / packed.scale).round().to(torch.int8)
        return packed

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["bits", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: Any) -> Tensor:
        return inner["bits"] * inner["scale"]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        plain = [x.bits * x.scale if isinstance(x, Quantised) else x for x in args]
        return func(*plain, **(kwargs or {}))


def test_quantised_weights_are_refused() -> None:
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].weight = nn.Parameter(Quantised(model[0].weight.detach()), requires_grad=False)
    model(torch.randn(2, 8))
    with pytest.raises(
        errors.Unsupported, match=r"0\.weight: its numbers are packed in a .*Quantised.*where='\*lora_\*'"
    ):
        flipout.perturb(model, flipout.Gaussian(0.1))
    assert type(model[0]) is type(model[1]) is nn.Linear
    flipout.perturb(model, flipout.Gaussian(0.1), where="1.weight")
    model(torch.randn(2, 8))


def test_a_parametrised_weight_is_refused_and_may_be_left_out() -> None:
    config = transformers.Wav2Vec2Config(
        vocab_size=31,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=(8, 8),
        conv_stride=(2, 2),
        conv_kernel=(3, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    speech = transformers.Wav2Vec2Model(config)
    with pytest.raises(errors.Unsupported, match=r"pos_conv_embed\.conv\.weight is parametrised .*leave the layer out"):
        flipout.perturb(speech, flipout.Gaussian(0.1))
    flipout.perturb(speech, flipout.Gaussian(0.1), where="*_proj.weight")
    linear = parametrizations.weight_norm(nn.Linear(4, 4))
    with pytest.raises(errors.Unsupported, match=r"remove_parametrizations"):
        flipout.perturb(nn.Sequential(linear), flipout.Gaussian(0.1))
