"""Trainers of one seed begin alike, and the terms of the ELBO add up to the loss."""

from dataclasses import replace

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument
from flipout.experiments.training.bayes import BayesTrainer, BayesTraining
from flipout.experiments.training.supervised import isolated_randomness, prepare

SMALL = BayesTraining(data="digits", hidden=(8,), batch=16, iterations=5)


@pytest.mark.parametrize("network", ["fc", "convle"])
def test_networks_of_one_seed_begin_alike_and_see_the_same_batches(run, network):
    config = replace(SMALL, network=network, width=1 / 16)
    prepared = prepare(config, run)
    before = torch.get_rng_state()
    with isolated_randomness(run):
        first, second = (BayesTrainer(config, prepared, scheme, 3, run) for scheme in ("shared", "flipout"))
        other = BayesTrainer(config, prepared, "flipout", 4, run)
        starts = [[p.clone() for p in trainer.model.parameters()] for trainer in (first, second, other)]
        first.train(2)
        second.train(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(starts[0], starts[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(starts[0], starts[2], strict=True))
    assert torch.equal(first.batches.get_state(), second.batches.get_state())
    assert not torch.equal(first.model.get_parameter("fc1.weight"), second.model.get_parameter("fc1.weight"))


def test_the_terms_add_up_to_the_loss(run):
    prepared = prepare(SMALL, run)
    with isolated_randomness(run):
        trainer = BayesTrainer(SMALL, prepared, "flipout", 0, run)
        with flipout.hold(trainer.model, seed=5):
            loss = trainer.elbo(prepared.x[:50], prepared.y[:50]).loss
            terms = trainer.terms(prepared.x[:50], prepared.y[:50])
        torch.testing.assert_close(terms.sum(), loss)
        divergence = 0.1 * flipout.bayes.kl(trainer.model) / len(prepared.x)
        torch.testing.assert_close(terms[1], divergence)
        assert trainer.train(4).shape == (4, 2)
        assert trainer.model.training
        trainer.close()


def test_initial_means_and_spreads(run):
    config = replace(SMALL, network="convle", width=1 / 4, start="truncated", relative=0.5)
    prepared = prepare(config, run)
    with isolated_randomness(run):
        model = BayesTrainer(config, prepared, "flipout", 0, run).model
        other = BayesTrainer(replace(SMALL, std=0.03), prepared, "flipout", 0, run).model
    weight, bias = model.get_parameter("fc1.weight"), model.get_parameter("fc1.bias")
    assert weight.abs().max() <= 0.2
    assert weight.std().item() == pytest.approx(0.1 * 0.8796, rel=0.02)  # of N(0, 1), cut off at ±2: 0.8796
    assert torch.equal(bias, torch.full_like(bias, 0.1))
    spread = torch.nn.functional.softplus(model.get_parameter("fc1.weight_rho"))
    torch.testing.assert_close(spread, 0.5 * weight.abs(), rtol=1e-4, atol=2e-6)
    assert other.get_parameter("fc1.weight_rho").detach().exp().log1p().mean().item() == pytest.approx(0.03, rel=1e-4)
    assert other.get_parameter("fc1.weight").abs().max() <= 64**-0.5  # PyTorch's own, U(±1/√fan_in)


def test_two_initial_spreads_are_refused():
    with pytest.raises(InvalidArgument, match=r"training\.std=0\.1 and training\.relative=0\.5: expected only one"):
        BayesTraining(std=0.1, relative=0.5)
