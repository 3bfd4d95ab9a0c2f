"""Put the layers of other libraries to the checks of flipout.testing, and print a table for each library.

python docs/conformance/peers.py bayesian-torch torchrl blitz torchbnn tensorflow-probability

What it printed is in the .txt files beside it, whose first line has the versions. Names of libraries choose some.
"""

import copy
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from flipout import testing
from flipout.testing import CHECKS, Claim, Report

Case = tuple[str, Callable[[Tensor], Any], Tensor, Claim, dict[str, Any]]
TOKENS, PICTURES, SEQUENCES = (4, 6, 5), (3, 2, 6, 6), (3, 5, 3)


def bayesian_torch() -> Iterator[Case]:
    from bayesian_torch import layers

    def case(layer: Any, plain: nn.Module, shape: tuple[int, ...], name: str = "weight") -> Case:
        rho = getattr(layer, f"rho_{name}")
        with torch.no_grad():
            rho.fill_(-0.5)
        claim = Claim(
            plain,
            {"weight": getattr(layer, f"mu_{name}")},
            {"weight": lambda: softplus(rho)},
            disabled={"eval()": lambda x: _in_eval(layer, x)},
            kl=lambda x: layer(x)[1],
            prior=(0.0, 1.0),
            pair=_pair(layer, copy.deepcopy(layer)),
            parameters=list(layer.parameters()),
        )
        return type(layer).__name__, layer, torch.randn(shape), claim, {}

    for kind in (layers.LinearReparameterization, layers.LinearFlipout):
        yield case(kind(5, 4, bias=False), nn.Linear(5, 4, bias=False), TOKENS)
    plain = nn.Conv2d(2, 3, 3, padding=1, bias=False)
    yield case(layers.Conv2dFlipout(2, 3, 3, padding=1, bias=False), plain, PICTURES, "kernel")
    lstm = layers.LSTMFlipout(3, 4, bias=False)
    names = {"weight_ih_l0": lstm.ih, "weight_hh_l0": lstm.hh}
    for part in names.values():
        torch.nn.init.constant_(part.rho_weight, -0.5)
    yield (
        "LSTMFlipout",
        lstm,
        torch.randn(SEQUENCES),
        Claim(
            nn.LSTM(3, 4, bias=False, batch_first=True),
            {name: part.mu_weight for name, part in names.items()},
            {name: (lambda part=part: softplus(part.rho_weight)) for name, part in names.items()},
            disabled={"eval()": lambda x: _in_eval(lstm, x)},
            kl=lambda x: lstm(x)[2],
            prior=(0.0, 1.0),
            parameters=list(lstm.parameters()),
        ),
        {"positions": (1,)},
    )


def torchrl() -> Iterator[Case]:
    from torchrl.modules.models.exploration import NoisyLinear

    layer = NoisyLinear(5, 4, bias=False, std_init=1.0, use_exploration_type=False)

    def reset(x: Tensor) -> Tensor:
        layer.reset_noise()
        return layer(x)

    claim = Claim(
        nn.Linear(5, 4, bias=False),
        {"weight": layer.weight_mu},
        {"weight": layer.weight_sigma},
        disabled={"eval()": lambda x: _in_eval(layer, x)},
        parameters=list(layer.parameters()),
    )
    yield "NoisyLinear", layer, torch.randn(TOKENS), claim, {}
    yield "with reset_noise", reset, torch.randn(TOKENS), claim, {}


def blitz() -> Iterator[Case]:
    from blitz.modules import BayesianConv2d, BayesianLinear

    linear = BayesianLinear(5, 4, bias=False, posterior_rho_init=-0.5, prior_sigma_1=1.0, prior_pi=1.0)
    conv = BayesianConv2d(2, 3, (3, 3), padding=1, bias=False, posterior_rho_init=-0.5)
    cases = [(linear, nn.Linear(5, 4, bias=False), TOKENS)]
    cases += [(conv, nn.Conv2d(2, 3, 3, padding=1, bias=False), PICTURES)]
    for layer, plain, shape in cases:
        claim = Claim(
            plain,
            {"weight": layer.weight_sampler.mu},  # weight_mu is another Parameter in the same memory
            {"weight": lambda layer=layer: softplus(layer.weight_sampler.rho)},
            disabled={"eval()": lambda x, layer=layer: _in_eval(layer, x)},
            parameters=list(layer.weight_sampler.parameters()),
            pair=_pair(layer, copy.deepcopy(layer)),
        )
        yield type(layer).__name__, layer, torch.randn(shape), claim, {}


def torchbnn() -> Iterator[Case]:
    from torchbnn import BayesConv2d, BayesLinear, BKLLoss

    linear = BayesLinear(0.0, 0.5, 5, 4, bias=False)
    conv = BayesConv2d(0.0, 0.5, 2, 3, 3, padding=1, bias=False)
    cases = [(linear, nn.Linear(5, 4, bias=False), TOKENS)]
    cases += [(conv, nn.Conv2d(2, 3, 3, padding=1, bias=False), PICTURES)]
    for layer, plain, shape in cases:

        def kl(x: Tensor, layer: nn.Module = layer) -> Tensor:
            layer(x)
            return BKLLoss(reduction="sum")(layer)

        claim = Claim(
            plain,
            {"weight": layer.weight_mu},
            {"weight": lambda layer=layer: layer.weight_log_sigma.exp()},
            disabled={"eval()": lambda x, layer=layer: _in_eval(layer, x)},
            kl=kl,
            prior=(0.0, 0.5),
            parameters=list(layer.parameters()),
            pair=_pair(layer, copy.deepcopy(layer)),
        )
        yield type(layer).__name__, layer, torch.randn(shape), claim, {}


def tensorflow_probability() -> Iterator[Case]:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tensorflow_probability as tfp

    tf.keras.utils.set_random_seed(0)
    for kind in ("DenseReparameterization", "DenseLocalReparameterization", "DenseFlipout"):
        layer = getattr(tfp.layers, kind)(4)
        twin = getattr(tfp.layers, kind)(4)
        layer(tf.zeros(TOKENS))
        posterior = layer.kernel_posterior.distribution

        def call(x: Tensor, layer: Any = layer, **mode: bool) -> Tensor:
            return torch.from_numpy(layer(tf.constant(x.detach().numpy()), **mode).numpy())

        def kl(x: Tensor, layer: Any = layer) -> float:
            layer(tf.constant(x.detach().numpy()))
            return float(sum(layer.losses))

        claim = Claim(
            nn.Linear(5, 4),
            {
                "weight": torch.tensor(posterior.mean().numpy().T),
                "bias": torch.tensor(layer.bias_posterior.mean().numpy()),  # it has no noise
            },
            {"weight": torch.tensor(posterior.stddev().numpy().T)},
            disabled={"training=False": lambda x, call=call: call(x, training=False)},
            kl=kl,
            prior=(0.0, 1.0),
            pair=_pair(call, lambda x, call=call, twin=twin: call(x, twin)),
        )
        yield kind, call, torch.randn(TOKENS), claim, {}


def _pair(first: Callable[[Tensor], Any], second: Callable[[Tensor], Any]) -> Callable[[Tensor], tuple[Any, Any]]:
    return lambda x: (first(x), second(x))


def _in_eval(layer: nn.Module, x: Tensor) -> Any:
    layer.eval()
    y = layer(x)
    layer.train()
    return y


# Library → its cases, and the distributions whose versions are printed.
LIBRARIES: dict[str, tuple[Callable[[], Iterator[Case]], tuple[str, ...]]] = {
    "bayesian-torch": (bayesian_torch, ("bayesian-torch",)),
    "torchrl": (torchrl, ("torchrl",)),
    "blitz": (blitz, ("blitz-bayesian-pytorch",)),
    "torchbnn": (torchbnn, ("torchbnn",)),
    "tensorflow-probability": (tensorflow_probability, ("tensorflow-probability", "tensorflow-cpu", "tf_keras")),
}


def reports(library: str, draws: int = 1000) -> dict[str, Report]:
    """Return the name of each layer of a library with its report."""
    torch.manual_seed(0)
    return {
        name: testing.check(call, x, claim, draws=draws, **options)
        for name, call, x, claim, options in LIBRARIES[library][0]()
    }


def table(library: str) -> str:
    """Return the outcomes and the numbers seen, as a Markdown table."""
    found = reports(library)
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES[library][1])
    lines = [f"Run with {versions}, torch {torch.__version__.partition('+')[0]}; 1000 draws.", ""]
    lines += [f"| check | {' | '.join(f'`{name}`' for name in found)} |", f"|---|{'---|' * len(found)}"]
    for check in CHECKS:
        cells = [report[check] for report in found.values()]
        shown = [
            "n/a" if c.seen is None or c.expected is None else f"{c.outcome}: {c.seen:.3g} (expected {c.expected:.3g})"
            for c in cells
        ]
        lines.append(f"| {check} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or LIBRARIES:
        print(table(name), end="")
