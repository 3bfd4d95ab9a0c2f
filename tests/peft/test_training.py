"""Training a posterior: checkpoints, bf16, autocast, compiled models, and the ELBO of a plain loop."""

from typing import Any

import pytest
import torch

import flipout
from benchmarks.small import python_calls
from flipout import bayes

from ..zoo.oracle import difference
from .models import BOUND, adapted, bayesian, tokens


def gradients(model: Any, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return the gradients of one training step."""
    model.zero_grad()
    inputs = tokens(4)
    torch.manual_seed(seed)
    loss = model.train()(**inputs, labels=inputs["input_ids"]).loss + bayes.kl(model) / 100
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("held", [False, True])
def test_gradient_checkpointing(held: bool) -> None:
    model = bayesian()
    plain = gradients(model)
    assert not torch.equal(plain[next(iter(plain))], gradients(model, seed=1)[next(iter(plain))])
    inner = model.get_base_model()
    inner.activation_checkpointing_enable()
    model.enable_input_require_grads()
    if held:
        with flipout.hold(model, seed=5):
            found = gradients(model)
        inner.activation_checkpointing_disable()
        with flipout.hold(model, seed=5):
            plain = gradients(model)
    else:
        found = gradients(model)
    assert found.keys() == plain.keys()
    assert difference(list(found.values()), list(plain.values())) < BOUND


@pytest.mark.parametrize("way", ["bf16", "bf16 adapters", "autocast"])
def test_bf16(way: str) -> None:
    """The base in bf16 with adapters in fp32, all in bf16, and autocast stay near fp64."""
    exact = gradients(bayesian())
    model = bayesian()
    if way == "bf16 adapters":
        model = model.bfloat16()
    elif way == "bf16":
        model = model.bfloat16()
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
    else:
        model = model.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        found = gradients(model)
    assert found.keys() == exact.keys()
    assert difference([g.double() for g in found.values()], list(exact.values())) < 0.1


@pytest.mark.slow  # torch.compile takes a quarter of a minute
def test_a_compiled_model_draws_and_learns_as_the_eager_one() -> None:
    inputs = tokens(4)
    model = bayesian().float()
    with torch.no_grad(), flipout.hold(model, seed=3):
        eager = model(**inputs).logits
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad(), flipout.hold(model, seed=3):
        torch.testing.assert_close(compiled(**inputs).logits, eager)
    model.train()
    first, second = compiled(**inputs).logits, compiled(**inputs).logits
    assert not torch.equal(first, second)
    first.sum().backward()
    spreads = [p for name, p in model.named_parameters() if name.endswith("_rho")]
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in spreads)


def test_a_plain_loop_lowers_the_bound() -> None:
    model = flipout.peft.bayesian_lora(adapted(target_modules=["q_proj", "v_proj", "lm_head"]).float(), std=0.05)
    batch = tokens(8)
    num_data = flipout.peft.count_labels([{"labels": batch["input_ids"]}])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.02)
    model.train()
    losses = []
    for _ in range(40):
        loss = model(**batch, labels=batch["input_ids"]).loss + bayes.kl(model) / num_data
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_elbo_takes_the_model_as_it_is() -> None:
    model, inputs = bayesian(), tokens(4)
    targets = inputs["input_ids"][:, 1:]

    def log_likelihood(output: Any, target: torch.Tensor) -> torch.Tensor:
        logits = output.logits[:, :-1].log_softmax(-1)
        return logits.gather(2, target.unsqueeze(2)).squeeze(2)

    elbo = bayes.ELBO(model, log_likelihood, num_data=40)
    with flipout.hold(model, seed=1):
        terms = elbo(inputs, targets)
        loss = model(**inputs, labels=inputs["input_ids"]).loss.double()
    torch.testing.assert_close(terms.kl, bayes.kl(model))
    expected = loss * targets.numel() / 4 + bayes.kl(model) / 40
    torch.testing.assert_close(terms.loss, expected, rtol=1e-5, atol=0)


def test_an_adapter_makes_few_calls() -> None:
    """Of a step: where products are small, as those of adapters are, Python takes the time."""

    def calls(model: Any, has_kl: bool) -> float:
        def step() -> None:
            loss = model(**inputs).logits.square().mean()
            (loss + bayes.kl(model) if has_kl else loss).backward()

        step()
        step()
        return python_calls(step)

    inputs, plain, noisy = tokens(), adapted().train(), bayesian().train()
    adapters = sum(isinstance(module, flipout.nn.Linear) for module in noisy.modules())
    assert adapters == 4
    forward_and_backward = calls(noisy, has_kl=False)
    assert forward_and_backward - calls(plain, has_kl=False) <= 140 * adapters
    assert calls(noisy, has_kl=True) - forward_and_backward <= 290 * adapters
