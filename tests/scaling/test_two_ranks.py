"""Two processes of torchrun: data-parallel and sharded models do what one process with the whole batch does."""

from pathlib import Path
from typing import Any

import pytest
import torch

import flipout
from flipout.bayes import kl
from tests.networks import gradients
from tests.scaling.models import (
    DYADIC_X,
    PRIORS,
    TARGETS,
    TOKENS,
    X,
    checkpointed,
    dyadic,
    elbo_of,
    optimizer_of,
    reader,
    train,
)
from tests.scaling.torchrun import launch, results

ALL = slice(0, 8)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    folder: Path = tmp_path_factory.mktemp("two")
    launch("tests.scaling.two_ranks", 2, folder)
    return results(folder, 2)


def averaged(ranks: list[dict[Any, Any]], *case: Any) -> torch.Tensor:
    """(step, loss and KL): data parallelism averages over the ranks."""
    return torch.stack([torch.stack(made["trained"][case]) for made in ranks]).mean(0)


def test_gradients_of_a_shared_base_are_those_of_one_process_bit_for_bit(ranks) -> None:
    torch.manual_seed(6)
    model = dyadic()
    model(DYADIC_X).square().sum().backward()
    for made in ranks:
        for name, gradient in gradients(model).items():
            assert torch.equal(2 * made["exact"][name], gradient)  # data parallelism has halved them


@pytest.mark.parametrize("kind", ["whole", "sharded", "kept"])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_shared_base_trains_as_one_process(ranks, prior: str, kind: str) -> None:
    model = reader(PRIORS[prior])
    torch.manual_seed(6)
    alone = torch.stack(train(elbo_of(model), optimizer_of(model), ALL))
    torch.testing.assert_close(averaged(ranks, prior, kind, True), alone, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["sharded", "kept"])
def test_a_sharded_model_trains_as_a_whole_one_where_ranks_have_bases_of_their_own(ranks, kind: str) -> None:
    for made in ranks:
        found, expected = (torch.stack(made["trained"]["closed form", k, False]) for k in (kind, "whole"))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_own_bases_are_seen_at_all(ranks) -> None:
    own, shared = (averaged(ranks, "closed form", "sharded", share)[0, 0] for share in (False, True))
    assert abs(own - shared) > 1e-6


@pytest.mark.parametrize("part", ["unequal", "accumulated"])
@pytest.mark.parametrize("prior", PRIORS)
def test_parts_of_a_batch_add_up(ranks, prior: str, part: str) -> None:
    model = reader(PRIORS[prior])
    with flipout.hold(model, seed=7):
        elbo_of(model)(TOKENS, TARGETS).loss.backward()
    for made in ranks:
        torch.testing.assert_close(made["parts"][prior, part], gradients(model), rtol=1e-9, atol=1e-12)


def test_checkpointed_blocks_see_their_draw_again(ranks) -> None:
    model = checkpointed()
    torch.manual_seed(6)
    model(X).square().mean().backward()
    for made in ranks:
        torch.testing.assert_close(made["parts"]["checkpointed"], gradients(model), rtol=1e-9, atol=1e-12)


def test_half_precision_keeps_parameters_in_single(ranks) -> None:
    model = reader().float()
    with flipout.hold(model, seed=7):
        loss = elbo_of(model)(TOKENS, TARGETS).loss
    mean = torch.stack([made["halves"]["loss"] for made in ranks]).mean()
    torch.testing.assert_close(mean, loss.detach(), rtol=0.02, atol=0)
    for made in ranks:
        torch.testing.assert_close(*made["halves"]["kl"], rtol=1e-6, atol=0)
        assert all(g.dtype == torch.float32 and g.isfinite().all() for g in made["halves"]["gradients"].values())


@pytest.mark.parametrize(
    ("attempt", "fix"),
    [
        ("perturb", "Perturb the model first, then shard it"),
        ("freeze", "full_state_dict=True"),
        ("prune", "full_state_dict=True"),
        ("outside", "unshard()"),
        ("tensor parallel", "cannot be perturbed yet"),
    ],
)
def test_refusals_say_what_to_do(ranks, attempt: str, fix: str) -> None:
    for made in ranks:
        assert fix in made["refusals"][attempt]


def test_a_model_sharded_on_meta_is_reset_with_what_stands_beside(ranks) -> None:
    expected = reader().float().state_dict()
    for made in ranks:
        numbers, said = made["meta"]
        assert numbers.keys() == expected.keys()
        beside = [name for name in expected if "_rho" in name or "_prior_" in name]
        assert all(torch.allclose(numbers[name], expected[name]) for name in beside)
        assert all(numbers[name].abs().max() < 100 for name in expected)
        assert "call reset_parameters() of each perturbed layer after to_empty" in said


def test_examples_see_weights_of_the_whole_parameter(ranks) -> None:
    model = reader()
    with flipout.hold(model, seed=7):
        model(TOKENS)
        weights = flipout.example_weights(model.lstm)["weight_hh_l0"].detach()
    torch.testing.assert_close(torch.cat([made["seen"] for made in ranks]), weights, rtol=0, atol=1e-14)


def test_all_ranks_skip_a_step_that_is_bad_in_one_shard(ranks) -> None:
    assert [made["guard"] for made in ranks] == [(True, True)] * 2


def test_the_summary_has_whole_shapes(ranks) -> None:
    assert "lstm.weight_hh_l0  " in ranks[0]["saved"]["summary"]
    assert "24×6" in ranks[0]["saved"]["summary"]


def test_a_sharded_state_dict_loads_into_a_model_that_is_whole(ranks) -> None:
    model = reader()
    model.load_state_dict(ranks[0]["saved"]["numbers"])
    assert kl(model).isfinite()
    torch.testing.assert_close(dict(model.state_dict()), ranks[1]["saved"]["numbers"], rtol=0, atol=0)
