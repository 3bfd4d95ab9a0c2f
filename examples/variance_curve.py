"""Gradient variance of a small network against batch size: python examples/variance_curve.py --figure curve.svg"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--draws", type=int, default=50)
parser.add_argument("--repeats", type=int, default=4)
parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8, 64, 512])
parser.add_argument("--figure", help="SVG or PNG to write; needs matplotlib")
SCHEMES = ["shared", "flipout"]


def partly_trained(x: Tensor, y: Tensor) -> nn.Module:
    """Train for 60 steps: the variance is measured at this point of training."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        batch = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return flipout.perturb(model, flipout.MultiplicativeGaussian(0.5))


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = x.float().view(-1, 1, 8, 8) / 16
    model = partly_trained(x, y)
    measured = flipout.variance.measure(
        model,
        cross_entropy,
        (x, y),
        batch_sizes=options.sizes,
        schemes=("shared", "flipout"),
        draws=options.draws,
        repeats=options.repeats,
    )
    for name in ("0.weight", "2.weight", "5.weight"):
        print(name)
        for scheme in SCHEMES:
            curve = measured.select(parameter=name, scheme=scheme)
            print(f"  {scheme:12}" + "".join(f"{record.variance:11.2e}" for record in curve))
    terms = flipout.variance.decompose(
        model, cross_entropy, (x, y), pairs=options.draws, batch_size=64, examples=10 * options.draws
    )
    for term in terms:
        print(f"{term.parameter:9} α {term.alpha.value:.2e}  β {term.beta.value:.2e}  γ {term.gamma.value:.2e}")
    if options.figure:
        measured.plot(options.figure, predictions=terms)


if __name__ == "__main__":
    main()
