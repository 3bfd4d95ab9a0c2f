"""Shared noise against flipout on scikit-learn's digits: the same network, the same noise, who shares it differs.

Trains a small network twice under multiplicative weight noise, then measures the variance of its gradients at growing
batch sizes. Under one shared perturbation the variance levels off; under flipout it keeps falling as 1/N.
"""

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout

DRAWS = {1: 3000, 16: 1000, 256: 200, 1024: 200}  # batch size → gradients measured
STEPS = 300


def load() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)


def network(scheme: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return flipout.perturb(model, flipout.MultiplicativeGaussian(std=1.0), scheme=scheme)


def batch(x: Tensor, y: Tensor, size: int) -> tuple[Tensor, Tensor]:
    chosen = torch.randint(len(x), (size,))
    return x[chosen], y[chosen]


def train(model: nn.Module, x: Tensor, y: Tensor, title: str, console: Console) -> float:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in track(range(STEPS), title, console=console):
        inputs, targets = batch(x, y, 512)
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) != y).float().mean().item()


def gradient_variance(model: nn.Module, weight: Tensor, x: Tensor, y: Tensor, size: int) -> float:
    """Variance of each entry of the first layer's gradient over fresh batches and draws, averaged over entries."""
    model.train()
    total, squares, draws = torch.zeros_like(weight), torch.zeros_like(weight), DRAWS[size]
    for _ in range(draws):
        inputs, targets = batch(x, y, size)
        (grad,) = torch.autograd.grad(cross_entropy(model(inputs), targets), weight)
        total += grad
        squares += grad.square()
    return ((squares - total.square() / draws) / (draws - 1)).mean().item()


def main() -> None:
    console = Console()
    x, y = load()
    models = {scheme: network(scheme) for scheme in ("shared", "flipout")}
    errors = {scheme: train(model, x, y, f"train, {scheme:7}", console) for scheme, model in models.items()}
    trained = models["flipout"]
    weight = trained.get_parameter("0.weight")
    table = Table(title="variance of the first layer's gradient")
    for head in ("batch size", "shared", "flipout", "shared / flipout"):
        table.add_column(head, justify="right")
    for size in track(DRAWS, "measure       ", console=console):
        measured = {}
        for scheme in ("shared", "flipout"):
            with flipout.using(trained, scheme=scheme):
                measured[scheme] = gradient_variance(trained, weight, x, y, size)
        ratio = measured["shared"] / measured["flipout"]
        table.add_row(str(size), f"{measured['shared']:.2e}", f"{measured['flipout']:.2e}", f"{ratio:.2f}")
    console.print(table)
    console.print(f"training error after {STEPS} steps: shared {errors['shared']:.1%}, flipout {errors['flipout']:.1%}")


if __name__ == "__main__":
    main()
