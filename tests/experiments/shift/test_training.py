"""Networks learn, and a posterior starts from trained weights."""

import pytest
import torch

from flipout import bayes
from flipout.experiments import data
from flipout.experiments.shift.training import (
    ShiftTraining,
    bayes_network,
    plain_network,
    rise_and_fall,
    train_plain,
    train_posterior,
)
from flipout.experiments.training.supervised import Prepared

CONFIG = ShiftTraining(width=4, blocks=1, epochs=3, bayes_epochs=1, batch=64, learning_rate=0.4, moved=False)


@pytest.fixture
def prepared() -> Prepared:
    digits = data.digits()
    x = data.standardised(digits.x_train[:512])
    return Prepared(x, digits.y_train[:512], x[:0], digits.y_test, 10, digits.source)


def trained(prepared: Prepared, run) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = plain_network(CONFIG, prepared)
    return run.tensors("network.0", lambda: train_plain(CONFIG, prepared, model, "network.0", run))


def test_a_network_learns_and_its_losses_are_logged(prepared, run):
    trained(prepared, run)
    losses = [line["loss"] for line in run.metrics_of("network.0")]
    assert len(losses) == 3
    assert losses[-1] < 0.7 * losses[0]


def test_a_posterior_starts_from_trained_weights(prepared, run):
    state = trained(prepared, run)
    still = ShiftTraining(**{**vars(CONFIG), "bayes_rate": 0.0, "spread_rate": 0.0})
    found = run.tensors("network.flipout", lambda: train_posterior(still, prepared, state, "network.flipout", run))
    names = [name for name in state if name.endswith(("weight", "bias"))]
    assert all(torch.equal(found[name], state[name]) for name in names)
    model = bayes_network(CONFIG, prepared)
    model.load_state_dict(found)
    spreads = [name for name, _ in model.named_parameters() if name.endswith("_rho")]
    # Eight 3×3 convolutions and two shortcuts have spreads, and the last layer; batch norms have none.
    assert len(spreads) == 7 + 2 + 1
    for name in spreads:
        expected = CONFIG.relative * state[name.removesuffix("_rho")].abs()
        torch.testing.assert_close(torch.nn.functional.softplus(found[name]), expected, rtol=1e-3, atol=2e-6)
    assert bayes.kl(model) > 0


def test_means_and_spreads_are_learned(prepared, run):
    state = trained(prepared, run)
    found = run.tensors("network.flipout", lambda: train_posterior(CONFIG, prepared, state, "network.flipout", run))
    start = bayes_network(CONFIG, prepared, state).state_dict()
    moved = {name: float((found[name] - start[name]).abs().max()) for name in start}
    assert all(moved[name] > 0 for name in moved if name.endswith(("weight", "_rho")))
    # Adam moves a number by about its learning rate at each of the eight steps.
    assert 5 * CONFIG.bayes_rate > moved["0.weight"]
    assert moved["0.weight_rho"] > 2 * CONFIG.spread_rate


def test_files_of_networks_are_contiguous_though_kernels_are_channels_last(prepared, run):
    model = plain_network(CONFIG, prepared)
    kernel = model.get_parameter("0.weight")
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    with torch.random.fork_rng():
        found = run.tensors("network.0", lambda: train_plain(CONFIG, prepared, model, "network.0", run))
    assert all(value.is_contiguous() for value in found.values())
    assert torch.equal(found["0.weight"], kernel)


def test_the_learning_rate_rises_and_falls():
    assert [rise_and_fall(time) for time in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])
