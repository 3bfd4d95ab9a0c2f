"""Which examples to label: at random, by entropy, or by mutual information? python examples/active_learning.py"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import flipout
from flipout import bayes

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--rounds", type=int, default=8)
parser.add_argument("--labels", type=int, default=20, help="labels at the start, and in each round")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--seeds", type=int, default=3)


def trained(x: Tensor, y: Tensor, steps: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    flipout.perturb(model, flipout.MeanField(prior=bayes.Normal(0.0, 1.0)))
    elbo = bayes.ELBO(model, "categorical", num_data=len(x), kl_weight=0.1)
    optimizer = torch.optim.Adam(elbo.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        elbo(x, y).loss.backward()
        optimizer.step()
    return model


def accuracies(choose: str, seed: int, options: argparse.Namespace) -> list[float]:
    """Return the accuracy on the test digits after each round of labels."""
    torch.manual_seed(seed)
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x, order = x.float() / 16, torch.randperm(1797)
    test, pool = order[:600], order[600:]
    labelled, accuracy = pool[: options.labels], []
    for _ in range(options.rounds):
        model = trained(x[labelled], y[labelled], options.steps)
        prediction = bayes.predict(model, x[test], likelihood="categorical")
        accuracy.append((prediction.mean.argmax(1) == y[test]).float().mean().item())
        rest = pool[~torch.isin(pool, labelled)]
        scores = {
            "random": lambda rest=rest: torch.rand(len(rest)),
            "entropy": lambda rest=rest: bayes.predict(model, x[rest], likelihood="categorical").total,  # noqa: B023
            "mutual information": lambda rest=rest: bayes.predict(model, x[rest], likelihood="categorical").epistemic,  # noqa: B023
        }[choose]()
        labelled = torch.cat([labelled, rest[scores.topk(options.labels).indices]])
    return accuracy


def main() -> None:
    options = parser.parse_args()
    print("labels             " + "".join(f"{options.labels * (i + 1):7}" for i in range(options.rounds)))
    for choose in ("random", "entropy", "mutual information"):
        runs = torch.tensor([accuracies(choose, seed, options) for seed in range(options.seeds)])
        print(f"{choose:19}" + "".join(f"{mean:7.3f}" for mean in runs.mean(0).tolist()))


if __name__ == "__main__":
    main()
