"""Readers of a saved Bayesian LoRA adapter, for the fuzzer. They need peft, and import it when they are called."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.errors import FlipoutError

_INPUTS = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


def make(folder: Path) -> None:
    """Save an adapter whose matrices and spreads are random."""
    model = _adapted()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink()  # a model card, which nobody reads here


def load(folder: Path) -> Any:
    """Load the adapter onto the base model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT, about fields that it does not know
        return _outcome(flipout.peft.load(_base(), folder))


def load_beside(folder: Path) -> Any:
    """Load the adapter into a model that has another one. A refused adapter must leave the model as it was."""
    model = _adapted("another")
    before = _numbers(model)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flipout.peft.load(model, folder)
    except FlipoutError:
        assert _numbers(model) == before, "a part of the adapter was loaded"
        raise
    model.set_adapter("default")
    return _outcome(model)


def _base() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def _adapted(name: str = "default") -> Any:
    import peft

    config = peft.LoraConfig(r=2, target_modules=["0", "2"])
    model: Any = peft.get_peft_model(_base(), config, adapter_name=name)  # pyright: ignore[reportArgumentType]
    return flipout.peft.bayesian_lora(model, std=0.2, prior_std=0.5)


def _outcome(model: Any) -> Any:
    with torch.no_grad(), flipout.hold(model, seed=3):
        predicted: Tensor = model(_INPUTS)
    return predicted.tolist(), _numbers(model), str(model.peft_config["default"])


def _numbers(model: nn.Module) -> list[tuple[str, list[float]]]:
    return [(name, value.flatten().tolist()) for name, value in model.state_dict().items()]
