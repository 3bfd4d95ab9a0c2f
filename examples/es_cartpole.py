"""A policy without gradients, in a run that may be killed: python examples/es_cartpole.py --folder runs/cartpole"""

import argparse

import torch
from torch import nn

import flipout
from flipout.es import rl

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--generations", type=int, default=30)
parser.add_argument("--population", type=int, default=80)
parser.add_argument("--steps", type=int, default=500, help="longest episode")
parser.add_argument("--scheme", choices=["flipout", "independent"], default="flipout")
parser.add_argument("--workers", type=int, default=0, help="Ray workers; 0: this process")
parser.add_argument("--folder", help="folder for checkpoints")


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    policy = nn.Sequential(rl.Normalizer(4), nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    fitness = rl.Episodes("CartPole-v1", episodes=1, steps=options.steps)
    fleet = flipout.es.RayFleet(workers=options.workers) if options.workers else flipout.es.Local()
    es = flipout.es.EvolutionStrategy(
        policy,
        fitness,
        population=options.population,
        group=40,
        std=0.1,
        scheme=options.scheme,
        antithetic=True,
        optimizer=lambda parameters: torch.optim.Adam(parameters, 0.05),
        fleet=fleet,
        seed=0,
    )
    if options.folder and es.resume(options.folder):
        print(f"continuing after generation {es.generation}")
    es.run(options.generations, checkpoint=options.folder, progress=print)
    returns = fitness.returns(policy, 50)
    print(f"at the mean weights: mean return {returns.mean():.0f}, worst of 50 {returns.min():.0f}")
    plain = flipout.freeze(policy)
    print(plain)  # torch's own modules; save with torch.save(plain.state_dict(), …)


if __name__ == "__main__":
    main()
