"""A member's return equals that of a plain loop over one environment with the member's weights."""

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors, es
from flipout.es import rl
from flipout.es._seeds import seed_of
from flipout.nn.eval_mode import in_eval
from tests.es.toys import strategy
from tests.oracles import weights_of_each

gymnasium: Any = pytest.importorskip("gymnasium", reason="flipout.es.rl needs gymnasium: pip install 'flipout[rl]'")
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"


class Recurrent(nn.Module):
    """A policy that sees positions alone, so it needs a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer, self.cell, self.head = rl.Normalizer(4), nn.LSTMCell(2, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        h, c = self.cell(self.normalizer(x)[:, ::2], state)
        return self.head(h), (h, c)


def linear(outputs: int, inputs: int) -> nn.Module:
    return nn.Sequential(rl.Normalizer(inputs), nn.Linear(inputs, outputs))


def balancing() -> nn.Linear:
    """A policy that pushes in the direction in which the pole falls."""
    model, rule = nn.Linear(4, 2), torch.tensor([0.1, 0.3, 1.0, 0.8])
    with torch.no_grad():
        model.weight.copy_(torch.stack((-rule, rule)))
        model.bias.zero_()
    return model


def plain_return(policy: Any, name: str, seed: int, steps: int, recurrent: bool, noise: Any = None) -> float:
    """One environment, one network, one loop."""
    environment, total, state = gymnasium.make(name), 0.0, None
    x, _ = environment.reset(seed=seed)
    for _ in range(steps):
        observation = torch.from_numpy(x).to(torch.get_default_dtype())[None]
        y, state = policy(observation, state) if recurrent else (policy(observation), None)
        action = int(y.argmax()) if name == CARTPOLE else y[0].double().numpy()
        if noise is not None:
            action = action + 0.3 * noise.standard_normal(1)
        if name == PENDULUM:
            action = np.clip(action, -2, 2).astype(np.float32)
        x, reward, ended, cut, _ = environment.step(action)
        total += float(reward)
        if ended or cut:
            break
    return total


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "cartpole": (lambda: linear(2, 4), CARTPOLE, {"episodes": 2}),
    "recurrent": (Recurrent, CARTPOLE, {"recurrent": True, "steps": 40}),
    "pendulum": (lambda: linear(1, 3), PENDULUM, {"action_noise": 0.3, "steps": 30}),
}


@pytest.mark.parametrize("image", [False, True], ids=["plain", "mirrored"])
@pytest.mark.parametrize("name", CASES)
def test_a_member_alone(name: str, image: bool) -> None:
    make, environment, how = CASES[name]
    torch.manual_seed(0)
    plain, model = make().eval(), make()
    plain.load_state_dict(model.state_dict())
    fitness = rl.Episodes(environment, **how)
    evolution = strategy(fitness, model, antithetic=True, std=0.5)
    population = evolution.ask(4)[1 + 3 * image]
    assert (population.first, population.size, population.antithetic) == (4, 4, image)
    returns = fitness(population)
    with in_eval(model), torch.no_grad(), flipout.hold(model, seed_of(0, 0), first=4, group=2, antithetic=image):
        model(torch.zeros(4, 4 if environment == CARTPOLE else 3))
        weights = weights_of_each(model)
    recurrent, episodes, steps = (
        how.get(key, least) for key, least in (("recurrent", 0), ("episodes", 1), ("steps", 500))
    )
    for member in range(4):
        member_weights = {key: weight[member] for key, weight in weights.items()}
        alone = []
        for episode in range(episodes):
            seed, noise = (seed_of(0, 0, f"{what} {episode} of {4 + member}") for what in ("episode", "action"))
            generator = np.random.default_rng(noise) if "action_noise" in how else None
            with torch.no_grad():
                policy = lambda *x: torch.func.functional_call(plain, member_weights, x)  # noqa: E731, B023
                alone.append(plain_return(policy, environment, seed, steps, bool(recurrent), generator))
        assert float(returns[member]) == pytest.approx(np.mean(alone), rel=1e-5)
    assert len(returns.unique()) > 1


@pytest.mark.parametrize("steps", [None, 100])
def test_a_policy_that_balances(steps: int | None) -> None:
    evolution = strategy(rl.Episodes(CARTPOLE, steps=steps), balancing(), std=1e-3)
    assert evolution.fleet.evaluate(evolution).tolist() == [steps or 500] * 24


@pytest.mark.parametrize("name", CASES)
def test_returns_are_those_of_the_mean(name: str) -> None:
    make, environment, how = CASES[name]
    torch.manual_seed(2)
    plain, episodes = make(), rl.Episodes(environment, **{"steps": 60, **how})
    evolution = strategy(episodes, copy.deepcopy(plain), std=1.0)
    noise = [
        np.random.default_rng(seed_of(5, i, "noise of returns")) if "action_noise" in how else None for i in (0, 1)
    ]
    with torch.no_grad():
        settings = (environment, episodes.steps or 0, episodes.recurrent)
        expected = [plain_return(plain, settings[0], seed_of(5, i, "returns"), *settings[1:], noise[i]) for i in (0, 1)]
    assert episodes.returns(evolution.model.train(), 2, seed=5).tolist() == pytest.approx(expected)
    assert evolution.model.training


@pytest.mark.parametrize("mode", ["sync", "async", "same step"])
def test_vector_environments(mode: str) -> None:
    """Episodes that gymnasium's vector environments start by themselves do not count."""
    options = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP} if mode == "same step" else {}
    kind = "async" if mode == "async" else "sync"
    vectors = rl.Episodes(lambda n: gymnasium.make_vec(CARTPOLE, n, kind, options), episodes=2)
    evolution = strategy(vectors, linear(2, 4), population=4, group=4, std=0.5)
    (population,) = evolution.ask()
    assert vectors(population).equal(rl.Episodes(CARTPOLE, episodes=2)(population))
    vectors.close()


def test_every_chunk_and_mirror_image_starts_alike() -> None:
    evolution = strategy(rl.Episodes(CARTPOLE), linear(2, 4), std=0.5)
    whole = evolution.fleet.evaluate(evolution)
    evolution.fleet = es.Local(members=5)
    assert evolution.fleet.evaluate(evolution).equal(whole)
    pairs = strategy(rl.Episodes(CARTPOLE), linear(2, 4), std=1e-9, antithetic=True)
    fitness = pairs.fleet.evaluate(pairs)
    assert fitness[:12].equal(fitness[12:])


def test_the_observations_of_some_members_are_counted() -> None:
    """The first members of the next generation play once more, and their observations are counted."""
    fitness = rl.Episodes(CARTPOLE, observed=0.1)
    evolution = strategy(fitness, linear(2, 4), std=0.5)
    evolution.step()
    first = evolution.model.state_dict()["0.count"].clone()
    evolution.fitness = lambda population: fitness(population)  # has no method `follow`
    evolution.step()
    assert evolution.model.state_dict()["0.count"].equal(first)
    returns = fitness(evolution.ask(2)[0])
    fitness.follow(evolution)
    # Each step of CartPole has one observation, and a reward of 1.
    assert float(evolution.model.state_dict()["0.count"] - first) == pytest.approx(float(returns.sum()))


def test_taken_up_again(tmp_path: Path) -> None:
    def run(folder: Path | None, *generations: int) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for count in generations:
            torch.manual_seed(1)
            evolution = strategy(rl.Episodes(CARTPOLE, steps=50), linear(2, 4), std=0.5)
            if folder is not None:
                evolution.resume(folder)
            evolution.run(count, checkpoint=folder)
            state = evolution.model.state_dict()
        return state

    whole, parts = run(None, 4), run(tmp_path, 2, 4)
    assert float(whole["0.count"]) > 10
    assert all(whole[key].equal(parts[key]) for key in whole)


def test_it_learns_to_balance() -> None:
    torch.manual_seed(0)
    optimizer = lambda parameters: torch.optim.Adam(parameters, 0.1)  # noqa: E731
    how = {"population": 40, "group": 20, "std": 0.2, "antithetic": True, "optimizer": optimizer}
    history = strategy(rl.Episodes(CARTPOLE, steps=100), linear(2, 4), **how).run(10)
    assert history[-1].fitness_mean > history[0].fitness_mean + 20


def test_environments_are_not_sent() -> None:
    fitness = rl.Episodes(CARTPOLE)
    (population,) = strategy(fitness, linear(2, 4), population=4, std=0.5).ask()
    expected = fitness(population)
    again = pickle.loads(pickle.dumps(fitness))
    assert again._vectors == {}
    assert again(population).equal(expected)
    fitness.close()


@pytest.mark.parametrize(
    ("environment", "how", "model", "said"),
    [
        (CARTPOLE, {}, linear(3, 4), r"returned shape \(24, 3\); expected \(members, 2\)"),
        (CARTPOLE, {}, Recurrent(), r"returned tuple; .* needs Episodes\(recurrent=True\)"),
        (CARTPOLE, {"action_noise": 0.1}, linear(2, 4), "noise is added to numbers"),
        ("FrozenLake-v1", {}, linear(4, 1), r"observations Discrete\(16\); expected a Box"),
        (lambda n: gymnasium.make(CARTPOLE), {}, linear(2, 4), r"environment\(24\) returned .* of None copies"),
    ],
)
def test_bad_environments(environment: Any, how: dict[str, Any], model: nn.Module, said: str) -> None:
    with pytest.raises((errors.InvalidArgument, errors.InvalidInput), match=said):
        strategy(rl.Episodes(environment, **how), model).step()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pendulum-v9", r"Episodes\('Pendulum-v9'\): .*provides versioned environments: \[ `v1` \]"),
        ("Pendulun-v1", "Did you mean: `Pendulum`"),
        ("NoSuchPackage/Pong-v5", "Namespace NoSuchPackage not found"),
    ],
)
def test_an_unknown_environment_is_refused_at_once(name: str, said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        rl.Episodes(name)


def test_the_latest_version_and_modules_are_left_to_gymnasium() -> None:
    assert rl.Episodes("Pendulum").environment == "Pendulum"
    assert rl.Episodes("no_such_module:Thing-v0").environment == "no_such_module:Thing-v0"


@pytest.mark.parametrize("how", [{"episodes": 0}, {"steps": 0}, {"action_noise": -1}, {"observed": 2}])
def test_bad_arguments(how: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="expected"):
        rl.Episodes(CARTPOLE, **how)


def test_without_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'flipout\[rl\]'"):
        rl.Episodes(CARTPOLE)
