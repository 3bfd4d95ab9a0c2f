"""Four processes under torchrun: two-dimensional meshes, and checkpoints written by two processes."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import flipout
from tests.scaling.models import PRIORS, TOKENS, elbo_of, optimizer_of, reader, train
from tests.scaling.torchrun import launch, results


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("two")
    launch("tests.scaling.two_ranks", 2, folder, "saved")
    return folder


@pytest.fixture(scope="module")
def four(two: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    folder: Path = tmp_path_factory.mktemp("four")
    launch("tests.scaling.four_ranks", 4, folder, two / "checkpoint")
    return results(folder, 4)


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
