"""Tiny models with LoRA adapters that are not 0, and the slow truth: each example alone, through plain PEFT."""

import copy
from typing import Any

import peft
import torch
from torch import Tensor, nn
from torch.func import functional_call

import flipout

from ..zoo import text
from ..zoo.oracle import difference, first_output, weights_by_example

BOUND = 1e-12  # of fp64
TARGETS = ("q_proj", "v_proj")


def randomise(model: nn.Module, std: float = 0.3) -> None:
    """Give all LoRA matrices random values: a B of 0 would hide the noise of A, an A of 0 that of B."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0.0, std)


def adapted(family: str = "Llama", *, seed: int = 0, base: nn.Module | None = None, **options: Any) -> Any:
    """A tiny language model in fp64 with random LoRA matrices."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(**{"r": 2, "target_modules": list(TARGETS), "task_type": "CAUSAL_LM", **options})
    model: Any = peft.get_peft_model(text.model(family) if base is None else base, config)  # pyright: ignore[reportArgumentType]
    randomise(model)
    return model.double().eval()


def bayesian(family: str = "Llama", **options: Any) -> Any:
    """The same with a posterior on A."""
    return flipout.peft.bayesian_lora(adapted(family, **options), std=0.2, prior_std=0.5)


def tokens(count: int = 3, length: int = 7, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(3, text.WORDS, (count, length), generator=generator)}


def against_loop(plain: nn.Module, inputs: dict[str, Tensor], *, gradients: bool = True, **options: Any) -> float:
    """Return the largest difference between a converted copy and a loop over its examples, relative to the largest."""
    model = flipout.peft.bayesian_lora(copy.deepcopy(plain), **{"std": 0.2, **options})
    with flipout.hold(model, seed=5):
        actual = first_output(model(**inputs))
        weights = weights_by_example(model)
    count = len(actual)
    assert len(weights) == count
    parameters = dict(model.named_parameters())
    truth = []
    for n, of_example in enumerate(weights):
        alone = {name: value[n : n + 1] for name, value in inputs.items()}
        known = {name: parameters[name] for name, _ in plain.named_parameters()}
        truth.append(first_output(functional_call(plain, {**known, **of_example}, (), alone)))
    expected, mean = torch.cat(truth), first_output(plain(**inputs))
    assert not torch.allclose(actual, mean, rtol=1e-3), "the noise made no difference"
    worst = difference([actual.detach()], [expected.detach()])
    if not gradients:
        return worst
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert any("rho" in name for name, parameter in model.named_parameters() if parameter.requires_grad)
    upstream = torch.randn_like(actual)
    got, wanted = (
        torch.autograd.grad(y, leaves, upstream, materialize_grads=True, retain_graph=True) for y in (actual, expected)
    )
    return max(worst, difference(got, wanted))
