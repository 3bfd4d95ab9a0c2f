"""Four processes of torchrun: meshes of two dimensions, and checkpoints that two processes wrote."""

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


def test_a_checkpoint_of_two_ranks_goes_on_in_four(two: Path, four: list[dict[Any, Any]]) -> None:
    before = [made["saved"] for made in results(two, 2)]
    for made in four:
        torch.testing.assert_close(made["loaded"]["numbers"], before[0]["numbers"], rtol=0, atol=0)
    expected = torch.stack([made["next"][0] for made in before]).mean(0)
    found = torch.stack([made["loaded"]["next"][0] for made in four]).mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_two_ranks_goes_on_in_one_process(two: Path) -> None:
    before = [made["saved"] for made in results(two, 2)]
    model = reader()
    optimizer = optimizer_of(model)
    parameters, state = get_state_dict(model, optimizer)
    dcp.load({"model": parameters, "optimizer": state}, checkpoint_id=two / "checkpoint")
    set_state_dict(model, optimizer, model_state_dict=parameters, optim_state_dict=state)
    torch.testing.assert_close(dict(model.state_dict()), before[0]["numbers"], rtol=0, atol=0)
    torch.manual_seed(9)
    (found,) = train(elbo_of(model), optimizer, slice(0, 8), 1)
    torch.testing.assert_close(found, torch.stack([made["next"][0] for made in before]).mean(0), rtol=1e-9, atol=0)


@pytest.mark.parametrize("prior", PRIORS)
def test_replicas_of_shards_train_as_one_process(four: list[dict[Any, Any]], prior: str) -> None:
    model = reader(PRIORS[prior])
    torch.manual_seed(6)
    alone = torch.stack(train(elbo_of(model), optimizer_of(model), slice(0, 8)))
    found = torch.stack([torch.stack(made["replicated"][prior, True][0]) for made in four]).mean(0)
    torch.testing.assert_close(found, alone, rtol=1e-9, atol=0)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("prior", PRIORS)
def test_replicas_stay_the_same(four: list[dict[Any, Any]], prior: str, share: bool) -> None:
    """Also where their draws differ, and a KL is estimated on one."""
    for one, other in ((0, 2), (1, 3)):
        shards = [four[rank]["replicated"][prior, share][1] for rank in (one, other)]
        torch.testing.assert_close(*shards, rtol=0, atol=0)


def test_only_the_data_parallel_rank_sets_draws_apart(four: list[dict[Any, Any]]) -> None:
    outputs = [made["beside"] for made in four]
    for one, other in ((0, 1), (2, 3)):
        torch.testing.assert_close(outputs[one], outputs[other], rtol=0, atol=1e-14)
    model = reader()
    torch.manual_seed(6)
    with flipout.hold(model):
        torch.testing.assert_close(outputs[0], model(TOKENS[:4]).detach(), rtol=0, atol=1e-12)
    assert not torch.allclose(outputs[0], outputs[2])
