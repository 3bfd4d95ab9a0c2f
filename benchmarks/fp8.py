"""Perturbations in FP8 against perturbations in bf16: mean, variance and gradients of one layer, and a training run."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import flipout
from flipout import bayes
from flipout.experiments import data
from flipout.experiments.training import networks

from .record import Row, rows

SCHEMES = {"flipout": flipout.Flipout(), "flipout fp8": flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn)}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EXAMPLES, DRAWS, SEEDS, ITERATIONS = 256, 64, 5, 1000


def run() -> Iterator[Row]:
    yield from _layer(512)
    yield from _training()


def _layer(width: int) -> Iterator[Row]:
    """Measure `MeanField` in bf16, as shares of single precision under the same draws, averaged over draws."""
    x, grad = (torch.randn(EXAMPLES, width, device=DEVICE) for _ in range(2))
    exact = flipout.nn.Linear(width, width, distribution=flipout.MeanField(), scheme="flipout").to(DEVICE)
    bias: dict[str, list[float]] = {name: [] for name in SCHEMES}
    ratios = {
        what: {name: list[float]() for name in SCHEMES} for what in ("variance", "error", "error of the gradient")
    }
    sums: dict[str, Tensor] = {}
    for seed in range(DRAWS):
        truth, slope = _perturbation(exact, x, grad, seed)
        for name, scheme in SCHEMES.items():
            layer = flipout.nn.Linear(width, width, distribution=flipout.MeanField(), scheme=scheme)
            layer.load_state_dict(exact.state_dict())
            layer.to(DEVICE, torch.bfloat16)
            perturbation, layer_slope = _perturbation(layer, x.bfloat16(), grad.bfloat16(), seed)
            sums[name] = sums.get(name, torch.zeros((), device=DEVICE)) + perturbation / DRAWS
            ratios["variance"][name].append(_share(perturbation, truth))
            ratios["error"][name].append(_share(perturbation - truth, truth))
            ratios["error of the gradient"][name].append(_share(layer_slope - slope, slope))
    for name, total in sums.items():  # the square of a mean over draws, relative to its variance: 1 without bias
        bias[name].append(total.square().mean().item() * DRAWS / _exact_variance(exact, x))
    case = f"fp8 {EXAMPLES} {width}→{width} mean-field"
    yield from rows(f"{case} mean of a perturbation", bias, {}, what="ratio", dtype="bfloat16")
    for what, measured in ratios.items():
        yield from rows(f"{case} {what}", measured, {}, what="ratio", dtype="bfloat16")


def _exact_variance(layer: flipout.nn.Linear, x: Tensor) -> float:
    spread = F.softplus(dict(layer.named_parameters())["weight_rho"].detach())
    return (x.square() @ spread.square().T).mean().item()


def _perturbation(layer: flipout.nn.Linear, x: Tensor, grad: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return what is added to the output at the mean, and the gradient of ρ."""
    rho = dict(layer.named_parameters())["weight_rho"]
    with flipout.hold(layer, seed):
        y = layer(x)
        (slope,) = torch.autograd.grad(y, [rho], grad)
    return (y - F.linear(x, layer.weight, layer.bias)).detach().float(), slope.float()


def _share(x: Tensor, of: Tensor) -> float:
    return (x.square().mean() / of.square().mean()).item()


def _training() -> Iterator[Row]:
    """Measure the expected log-loss of the test images after training under autocast to bf16.

    On a GPU 784-512-512-10 on MNIST in batches of 8192, else 64-64-10 on scikit-learn's digits.
    """
    on_gpu = DEVICE.type == "cuda"
    images = data.mnist() if on_gpu else data.digits()
    x, test_x = (
        data.standardised(split, images.x_train).flatten(1).to(DEVICE) for split in (images.x_train, images.x_test)
    )
    y, test_y = images.y_train.to(DEVICE), images.y_test.to(DEVICE)
    measured: dict[str, list[float]] = {name: [] for name in SCHEMES}
    for seed in range(SEEDS):
        for name, scheme in SCHEMES.items():
            torch.manual_seed(seed)
            model = networks.fc(x.shape[1], (512, 512) if on_gpu else (64,), 10).to(DEVICE)
            flipout.perturb(model, flipout.MeanField(prior=bayes.Normal(0.0, 1.0)), scheme=scheme)
            elbo = bayes.ELBO(model, "categorical", num_data=len(x), kl_weight=0.1, check=False)
            optimizer = torch.optim.Adam(model.parameters(), 3e-3, capturable=on_gpu)

            def step(batch: Tensor, elbo=elbo, optimizer=optimizer) -> Tensor:
                with torch.autocast(DEVICE.type, torch.bfloat16):
                    result = elbo(x[batch], y[batch])
                optimizer.zero_grad()
                result.loss.backward()
                optimizer.step()
                return result.loss.detach()

            captured, size = flipout.capture(step), 8192 if on_gpu else 512
            for _ in range(ITERATIONS if on_gpu else ITERATIONS // 4):
                captured(torch.randint(len(x), (size,), device=DEVICE))
            captured.close()
            with torch.no_grad(), flipout.using(model, scheme="flipout"):
                measured[name].append(
                    float(torch.stack([F.cross_entropy(model(test_x), test_y) for _ in range(8)]).mean())
                )
    case = "fp8 training, " + ("784-512-512-10, MNIST" if on_gpu else "64-64-10, digits")
    yield from rows(case, measured, {"flipout fp8": "flipout"}, what="nats", dtype="bfloat16")
