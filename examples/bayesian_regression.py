"""Error bars that grow in a gap of the data: python examples/bayesian_regression.py --figure curve.svg"""

import argparse

import torch
from torch import nn

import flipout
from flipout import bayes

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--points", type=int, default=200)
parser.add_argument("--figure", help="SVG or PNG to write; needs matplotlib")


def data(points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two parts of a sine, with a gap between them."""
    x = torch.cat([torch.empty(points // 2).uniform_(-3, -1), torch.empty(points - points // 2).uniform_(1, 3)])[
        :, None
    ]
    return x, torch.sin(2 * x) + 0.1 * torch.randn_like(x)


def posterior(x: torch.Tensor, y: torch.Tensor, steps: int) -> bayes.ELBO:
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    flipout.perturb(model, flipout.MeanField(prior=bayes.Normal(0.0, 1.0)), where="*")  # biases too
    elbo = bayes.ELBO(model, "gaussian", num_data=len(x), kl_weight=bayes.warm_up(steps // 2, weight=0.1))
    optimizer = torch.optim.Adam(elbo.parameters(), 1e-2)  # learns the noise of the data too
    for step in range(steps):
        optimizer.zero_grad()
        elbo(x, y, step=step).loss.backward()
        optimizer.step()
    return elbo


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    x, y = data(options.points)
    elbo = posterior(x, y, options.steps)
    grid = torch.linspace(-3, 3, 25)[:, None]
    prediction = bayes.predict(elbo, grid, samples=256, joint=True, seed=1)
    low, high = prediction.interval(0.9)
    print("     x    mean   90 % of the targets   noise of the data   of the weights")
    for i in range(0, 25, 2):
        noise, uncertainty = prediction.aleatoric[i, 0].sqrt(), prediction.epistemic[i, 0].sqrt()
        ends = f"{low[i, 0]:.2f} … {high[i, 0]:.2f}"
        print(f"{grid[i, 0]:6.1f} {prediction.mean[i, 0]:7.2f} {ends:>21} {noise:19.2f} {uncertainty:16.2f}")
    if options.figure:
        figure = prediction.plot(grid)
        figure.axes[0].plot(x, y, ".", color="black", ms=2)
        figure.savefig(options.figure)


if __name__ == "__main__":
    main()
