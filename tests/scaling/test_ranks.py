"""Two and four processes under torchrun: data-parallel and sharded models do what one does with the whole batch.

The four have two-dimensional meshes, and go on from the checkpoint of the two.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

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
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes leave their results and their checkpoint."""
    folder: Path = tmp_path_factory.mktemp("two")
    launch("tests.scaling.two_ranks", 2, folder)
    return folder


@pytest.fixture(scope="module")
def ranks(two: Path) -> list[dict[Any, Any]]:
    return results(two, 2)


@pytest.fixture(scope="module")
def four(two: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    folder: Path = tmp_path_factory.mktemp("four")
    launch("tests.scaling.four_ranks", 4, folder, two / "checkpoint")
    return results(folder, 4)


def averaged(ranks: list[dict[Any, Any]], *case: Any) -> torch.Tensor:
    """Return (steps, 2) losses and KLs. Data parallelism averages them over the ranks."""
    return torch.stack([torch.stack(rank["trained"][case]) for rank in ranks]).mean(0)


def test_gradients_of_a_shared_base_equal_one_process_bit_for_bit(ranks) -> None:
    torch.manual_seed(6)
    model = dyadic()
    model(DYADIC_X).square().sum().backward()
    for rank in ranks:
        for name, gradient in gradients(model).items():
            assert torch.equal(2 * rank["exact"][name], gradient)  # DDP averages, so it halves the sum


@pytest.mark.parametrize("kind", ["replicated", "sharded", "kept gathered"])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_shared_base_trains_like_one_process(ranks, prior: str, kind: str) -> None:
    model = reader(PRIORS[prior])
    torch.manual_seed(6)
    alone = torch.stack(train(elbo_of(model), optimizer_of(model), ALL))
    torch.testing.assert_close(averaged(ranks, prior, kind, True), alone, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["sharded", "kept gathered"])
def test_a_sharded_model_trains_like_a_replicated_one_if_each_rank_has_its_own_base(ranks, kind: str) -> None:
    for rank in ranks:
        found, expected = (torch.stack(rank["trained"]["closed form", k, False]) for k in (kind, "replicated"))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_separate_bases_change_the_losses(ranks) -> None:
    separate, shared = (averaged(ranks, "closed form", "sharded", share)[0, 0] for share in (False, True))
    assert abs(separate - shared) > 1e-6


@pytest.mark.parametrize("part", ["unequal", "accumulated"])
@pytest.mark.parametrize("prior", PRIORS)
def test_parts_of_a_batch_add_up(ranks, prior: str, part: str) -> None:
    model = reader(PRIORS[prior])
    with flipout.hold(model, seed=7):
        elbo_of(model)(TOKENS, TARGETS).loss.backward()
    for rank in ranks:
        torch.testing.assert_close(rank["parts"][prior, part], gradients(model), rtol=1e-9, atol=1e-12)


def test_checkpointed_blocks_replay_their_draw(ranks) -> None:
    model = checkpointed()
    torch.manual_seed(6)
    model(X).square().mean().backward()
    for rank in ranks:
        torch.testing.assert_close(rank["parts"]["checkpointed"], gradients(model), rtol=1e-9, atol=1e-12)


def test_half_precision_keeps_parameters_in_fp32(ranks) -> None:
    model = reader().float()
    with flipout.hold(model, seed=7):
        loss = elbo_of(model)(TOKENS, TARGETS).loss
    mean = torch.stack([rank["half precision"]["loss"] for rank in ranks]).mean()
    torch.testing.assert_close(mean, loss.detach(), rtol=0.02, atol=0)
    for rank in ranks:
        torch.testing.assert_close(*rank["half precision"]["kl"], rtol=1e-6, atol=0)
        assert all(
            g.dtype == torch.float32 and g.isfinite().all() for g in rank["half precision"]["gradients"].values()
        )


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
def test_refusals_name_the_fix(ranks, attempt: str, fix: str) -> None:
    for rank in ranks:
        assert fix in rank["refusals"][attempt]


def test_reset_parameters_fills_spreads_and_priors_of_a_model_sharded_on_meta(ranks) -> None:
    expected = reader().float().state_dict()
    for rank in ranks:
        state, message = rank["meta"]
        assert state.keys() == expected.keys()
        learned = [name for name in expected if "_rho" in name or "_prior_" in name]
        assert all(torch.allclose(state[name], expected[name]) for name in learned)
        assert all(state[name].abs().max() < 100 for name in expected)
        assert "call reset_parameters() of each perturbed layer after to_empty" in message


def test_examples_see_weights_of_the_full_parameter(ranks) -> None:
    model = reader()
    with flipout.hold(model, seed=7):
        model(TOKENS)
        weights = flipout.example_weights(model.lstm)["weight_hh_l0"].detach()
    torch.testing.assert_close(torch.cat([rank["example weights"] for rank in ranks]), weights, rtol=0, atol=1e-14)


def test_all_ranks_skip_a_step_that_is_bad_in_one_shard(ranks) -> None:
    assert [rank["guard"] for rank in ranks] == [(True, True)] * 2


def test_the_summary_has_full_shapes(ranks) -> None:
    assert "lstm.weight_hh_l0  " in ranks[0]["saved"]["summary"]
    assert "24×6" in ranks[0]["saved"]["summary"]


def test_a_full_state_dict_loads_into_an_unsharded_model(ranks) -> None:
    model = reader()
    model.load_state_dict(ranks[0]["saved"]["state"])
    assert kl(model).isfinite()
    torch.testing.assert_close(dict(model.state_dict()), ranks[1]["saved"]["state"], rtol=0, atol=0)


def test_four_ranks_continue_from_a_checkpoint_of_two(two: Path, four: list[dict[Any, Any]]) -> None:
    before = [rank["saved"] for rank in results(two, 2)]
    for rank in four:
        torch.testing.assert_close(rank["loaded"]["state"], before[0]["state"], rtol=0, atol=0)
    expected = torch.stack([rank["next"][0] for rank in before]).mean(0)
    found = torch.stack([rank["loaded"]["next"][0] for rank in four]).mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_one_process_continues_from_a_checkpoint_of_two(two: Path) -> None:
    before = [rank["saved"] for rank in results(two, 2)]
    model = reader()
    optimizer = optimizer_of(model)
    parameters, state = get_state_dict(model, optimizer)
    dcp.load({"model": parameters, "optimizer": state}, checkpoint_id=two / "checkpoint")
    set_state_dict(model, optimizer, model_state_dict=parameters, optim_state_dict=state)
    torch.testing.assert_close(dict(model.state_dict()), before[0]["state"], rtol=0, atol=0)
    torch.manual_seed(9)
    (found,) = train(elbo_of(model), optimizer, slice(0, 8), 1)
    torch.testing.assert_close(found, torch.stack([rank["next"][0] for rank in before]).mean(0), rtol=1e-9, atol=0)


@pytest.mark.parametrize("prior", PRIORS)
def test_replicas_of_shards_train_like_one_process(four: list[dict[Any, Any]], prior: str) -> None:
    model = reader(PRIORS[prior])
    torch.manual_seed(6)
    alone = torch.stack(train(elbo_of(model), optimizer_of(model), slice(0, 8)))
    found = torch.stack([torch.stack(rank["replicated"][prior, True][0]) for rank in four]).mean(0)
    torch.testing.assert_close(found, alone, rtol=1e-9, atol=0)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("prior", PRIORS)
def test_replicas_stay_equal(four: list[dict[Any, Any]], prior: str, share: bool) -> None:
    """Even if their draws differ and the KL is estimated on one of them."""
    for first, second in ((0, 2), (1, 3)):
        shards = [four[rank]["replicated"][prior, share][1] for rank in (first, second)]
        torch.testing.assert_close(*shards, rtol=0, atol=0)


def test_only_the_data_parallel_rank_changes_the_draw(four: list[dict[Any, Any]]) -> None:
    outputs = [rank["one dimension"] for rank in four]
    for first, second in ((0, 1), (2, 3)):
        torch.testing.assert_close(outputs[first], outputs[second], rtol=0, atol=1e-14)
    model = reader()
    torch.manual_seed(6)
    with flipout.hold(model):
        torch.testing.assert_close(outputs[0], model(TOKENS[:4]).detach(), rtol=0, atol=1e-12)
    assert not torch.allclose(outputs[0], outputs[2])
