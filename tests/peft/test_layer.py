"""Adapters that are switched, disabled, merged, mixed in one batch and deleted."""

import copy
from typing import Any

import peft
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

import flipout
from flipout import bayes, errors

from ..zoo import text
from ..zoo.oracle import difference, weights_by_example
from .models import BOUND, TARGETS, adapted, bayesian, randomise, tokens

pytestmark = pytest.mark.filterwarnings("error::flipout.errors.NeverRead")


def with_two(*, second: bool = True, **options: Any) -> Any:
    """A model with two adapters, "default" and "other", the first of them active."""
    model = adapted(**options)
    model.add_adapter("other", peft.LoraConfig(r=3, target_modules=["q_proj", "o_proj"], lora_alpha=5))
    torch.manual_seed(1)
    randomise(model)
    model = flipout.peft.bayesian_lora(model.double().eval(), std=0.2)
    return flipout.peft.bayesian_lora(model, std=0.3, prior_std=0.7, adapter="other") if second else model


def test_kl_counts_the_active_adapters() -> None:
    model = with_two()
    of_each = {}
    for name in ("default", "other"):
        model.set_adapter(name)
        of_each[name] = bayes.kl(model).item()
        assert all(f".{name}.weight" in parameter for parameter in bayes.kl_terms(model))
    model.base_model.set_adapter(["default", "other"])
    assert bayes.kl(model).item() == pytest.approx(sum(of_each.values()))
    first = next(p for n, p in model.named_parameters() if n.endswith("lora_A.default.weight_rho"))
    std, mean = torch.nn.functional.softplus(first), model.base_model.model.model.layers[0].self_attn.q_proj.lora_A
    closed = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean["default"]._parameters["weight"], std), torch.distributions.Normal(0.0, 0.2)
    ).sum()
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
    torch.testing.assert_close(bayes.kl_terms(model)[name], closed)


def test_disabled_adapters_have_no_noise_and_no_kl() -> None:
    model, inputs = with_two(), tokens()
    with model.disable_adapter():
        expected = model(**inputs).logits
        with flipout.hold(model, seed=1):
            assert torch.equal(model(**inputs).logits, expected)
        with flipout.sampling(model):
            assert torch.equal(model(**inputs).logits, expected)
        assert torch.equal(model.train()(**inputs).logits, expected)
        assert bayes.kl(model).item() == 0.0
    assert bayes.kl(model).item() > 0
    assert not torch.equal(model(**inputs).logits, expected)


@pytest.mark.parametrize("active", ["default", "other", ["default", "other"]])
def test_switched_adapters_against_the_loop(active: Any) -> None:
    model, inputs = with_two(), tokens()
    model.base_model.set_adapter(active)
    assert _against_loop(model, inputs) < BOUND


def test_an_adapter_that_is_added_later_is_plain() -> None:
    model, inputs = bayesian(), tokens()
    model.add_adapter("later", peft.LoraConfig(r=2, target_modules=list(TARGETS)))
    randomise(model)
    model.double()
    assert _against_loop(model, inputs) < BOUND  # the first one is noisy as before
    model.set_adapter("later")
    with flipout.hold(model, seed=1):
        noisy = model(**inputs).logits
    assert torch.equal(noisy, model(**inputs).logits)
    assert bayes.kl(model).item() == 0.0
    flipout.peft.bayesian_lora(model, std=0.1)
    assert _against_loop(model, inputs) < BOUND
    assert len(bayes.kl_terms(model)) == 4


@pytest.mark.parametrize("target", ["q_proj", "embed_tokens"])
def test_an_adapter_that_is_added_in_eval_mode_is_at_its_mean(target: str) -> None:
    """PEFT leaves the matrices of a new adapter in training mode."""
    model, inputs = adapted(), tokens()
    model.add_adapter("later", peft.LoraConfig(r=2, target_modules=[target]))
    model.set_adapter("later")
    randomise(model)
    mean = model(**inputs).logits
    flipout.peft.bayesian_lora(model, std=0.2)
    assert torch.equal(model(**inputs).logits, mean)
    assert not torch.equal(model.train()(**inputs).logits, mean)


def test_a_base_in_eval_mode_is_noisy_if_its_adapter_trains() -> None:
    """As `from_pretrained` and `get_peft_model` leave them: a loop that forgets `model.train()` still has noise."""
    base: Any = text.model("Llama").double().eval()
    model: Any = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=list(TARGETS)))
    randomise(model)
    flipout.peft.bayesian_lora(model, std=0.2)
    assert not torch.equal(model(**tokens()).logits, model(**tokens()).logits)


@pytest.mark.parametrize("table", [False, True])
def test_spreads_are_trained_where_their_means_are(table: bool) -> None:
    model = with_two(target_modules=["embed_tokens" if table else "v_proj", "q_proj"])
    for active in ("other", "default"):
        model.set_adapter(active)
        parameters = dict(model.named_parameters())
        spreads = [name for name in parameters if name.endswith("_rho")]
        assert spreads
        for name in spreads:
            assert parameters[name].requires_grad == parameters[name.removesuffix("_rho")].requires_grad
            assert parameters[name].requires_grad == (f".{active}" in name)


def test_two_posteriors_on_one_table() -> None:
    model = adapted(target_modules=["embed_tokens"])
    model.add_adapter("other", peft.LoraConfig(r=3, target_modules=["embed_tokens", "q_proj"]))
    randomise(model)
    flipout.peft.bayesian_lora(model.double().eval(), std=0.2)
    flipout.peft.bayesian_lora(model, std=0.2, adapter="other")
    for active in ("default", "other"):
        model.set_adapter(active)
        assert _against_loop(model, tokens()) < BOUND
        assert len(bayes.kl_terms(model)) == (1 if active == "default" else 3)
    model.delete_adapter("default")
    assert _against_loop(model, tokens()) < BOUND
    assert not any("default" in name for name in model.state_dict())


@pytest.mark.filterwarnings("ignore:Adapter default was active which is now deleted")
def test_a_deleted_adapter_is_gone() -> None:
    model = with_two()
    model.delete_adapter("default")
    assert model.active_adapters == ["other"]
    assert _against_loop(model, tokens()) < BOUND
    assert all(".other." in name for name in bayes.kl_terms(model))


def test_merging_takes_the_mean() -> None:
    model, inputs = bayesian(), tokens()
    mean = model(**inputs).logits
    model.merge_adapter()
    torch.testing.assert_close(model(**inputs).logits, mean)
    model.unmerge_adapter()
    assert _against_loop(model, inputs) < 1e-9  # unmerging rounds


@pytest.mark.parametrize("noisy", ["training", "hold", "sampling"])
def test_merging_while_noisy_is_refused(noisy: str) -> None:
    model, inputs = bayesian(), tokens()
    expected = model(**inputs).logits
    contexts = {"hold": flipout.hold, "sampling": flipout.sampling}
    if noisy == "training":
        model.train()
        with pytest.raises(errors.InvalidArgument, match=r"Merging takes the mean: call model\.eval\(\)"):
            model.merge_adapter()
    else:
        with contexts[noisy](model), pytest.raises(errors.InvalidArgument, match="Merging takes the mean"):
            model.merge_adapter()
    assert torch.equal(model.eval()(**inputs).logits, expected)


def test_a_merged_posterior_does_not_pretend_to_be_sampled() -> None:
    model, inputs = bayesian(), tokens()
    model.merge_adapter()
    with pytest.raises(errors.InvalidArgument, match=r"model\.unmerge_adapter\(\)"):
        bayes.predict(model, inputs, samples=2, output="logits")
    with pytest.raises(errors.InvalidArgument, match=r"model\.unmerge_adapter\(\)"):
        model.train()(**inputs)


def test_merge_and_unload_gives_a_plain_model() -> None:
    model, inputs = bayesian(), tokens()
    mean = model(**inputs).logits
    plain = model.merge_and_unload()
    torch.testing.assert_close(plain(**inputs).logits, mean)
    assert torch.equal(plain.train()(**inputs).logits, plain.eval()(**inputs).logits)


@pytest.mark.parametrize("second", [True, False])
def test_an_adapter_for_each_row(second: bool) -> None:
    model, inputs = with_two(second=second), tokens(5)
    names = ["default", "other", "__base__", "other", "default"]
    with torch.no_grad(), flipout.hold(model, seed=2):
        actual = model(**inputs, adapter_names=names).logits
        rows = []
        for row, name in enumerate(names):  # the whole batch under one adapter has the same samples
            if name == "__base__":
                with model.disable_adapter():
                    rows.append(model(**inputs).logits[row])
            else:
                model.set_adapter(name)
                rows.append(model(**inputs).logits[row])
    assert difference([actual], [torch.stack(rows)]) < BOUND
    model.set_adapter("default")
    assert not torch.allclose(actual, model(**inputs, adapter_names=names).logits, rtol=1e-3)


def test_an_adapter_for_each_row_with_a_noisy_table_is_refused() -> None:
    model, inputs = with_two(target_modules=["embed_tokens"]), tokens(3)
    names = ["default", "other", "default"]
    with flipout.hold(model, seed=2), pytest.raises(errors.Unsupported, match="lora_embedding_A of adapter 'default'"):
        model(**inputs, adapter_names=names)
    model(**inputs, adapter_names=names)  # the means


def _against_loop(model: Any, inputs: dict[str, Tensor]) -> float:
    """Compare a model as it is with the loop over its examples, through a copy without noise."""
    with flipout.hold(model, seed=5):
        actual = model(**inputs).logits
        weights = weights_by_example(model)
    plain = flipout.freeze(copy.deepcopy(model))
    names = {name for name, _ in plain.named_parameters()}
    expected = []
    for n, of_example in enumerate(weights):
        alone = {name: value[n : n + 1] for name, value in inputs.items()}
        seen = {name: value for name, value in of_example.items() if name in names}
        expected.append(functional_call(plain, seen, (), alone).logits)
    assert not torch.allclose(actual, plain(**inputs).logits, rtol=1e-3), "the noise made no difference"
    return difference([actual.detach()], [torch.cat(expected).detach()])
