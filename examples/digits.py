"""Shared noise against flipout on scikit-learn's digits: the same network, the same noise, who shares it differs.

Trains a small network twice under multiplicative weight noise, then measures the variance of its gradients at growing
batch sizes, with its 90 % interval. Under one shared perturbation it levels off; under flipout it keeps falling as 1/N.
"""

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout

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


def main() -> None:
    console = Console()
    x, y = load()
    models = {scheme: network(scheme) for scheme in ("shared", "flipout")}
    errors = {scheme: train(model, x, y, f"train, {scheme:7}", console) for scheme, model in models.items()}
    sizes, schemes = (1, 16, 256, 1024), ("shared", "flipout")
    measured = flipout.variance.measure(
        models["flipout"],
        cross_entropy,
        (x, y),
        batch_sizes=sizes,
        schemes=schemes,
        draws=100,
        repeats=8,
        progress=lambda points: track(points, "measure       ", console=console),
    ).select(parameter="0.weight")
    table = Table(title="variance of the first layer's gradient")
    for head in ("batch size", "shared", "flipout", "shared / flipout"):
        table.add_column(head, justify="right")
    for size in sizes:
        shared, own = (next(iter(measured.select(scheme=scheme, batch_size=size))) for scheme in schemes)
        row = [f"{r.variance:.1e} ± {r.high - r.variance:.0e}" for r in (shared, own)]
        table.add_row(str(size), *row, f"{shared.variance / own.variance:.1f}")
    console.print(table)
    console.print(f"training error after {STEPS} steps: shared {errors['shared']:.1%}, flipout {errors['flipout']:.1%}")


if __name__ == "__main__":
    main()
