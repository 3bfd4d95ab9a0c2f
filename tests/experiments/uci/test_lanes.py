"""A lane is what its network would be alone."""

import pytest
import torch
from torch import Tensor

from flipout.experiments.uci.lanes import Lanes, Training, copied, train
from flipout.experiments.uci.networks import METHODS, Objective, objective
from tests.statistics import assert_same_mean


def three(method: str) -> list[Objective]:
    """Return three networks with their own candidates and weights, spreads among them."""
    torch.manual_seed(0)
    found = [objective(METHODS[method], METHODS[method].candidates[n], 4, 6, 50) for n in (0, 2, 3)]
    for network in found:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return found


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 7, 4, generator=generator), torch.randn(3, 7, generator=generator)


def test_losses_and_outputs_of_plain_networks_are_those_of_each_alone():
    networks, (x, y) = three("plain"), data()
    lanes = Lanes.of(networks)
    expected = [network(x[n], y[n]) for n, network in enumerate(networks)]
    assert torch.allclose(lanes.losses(x, y), torch.stack(expected))
    expected = [network.network(x[n]) for n, network in enumerate(networks)]
    assert torch.allclose(lanes.outputs(x), torch.stack(expected))
    assert torch.allclose(lanes.noise, torch.stack([network.likelihood.log_std.exp() for network in networks]))


@pytest.mark.parametrize("method", ["dropout", "shared", "flipout", "local_reparam", "rank_one"])
def test_losses_under_noise_have_the_mean_of_a_network_alone(method):
    networks, (x, y) = three(method), data()
    lanes = Lanes.of(networks)
    with torch.no_grad():
        together = torch.stack([lanes.losses(x, y)[2] for _ in range(1000)])
        alone = torch.stack([networks[2](x[2], y[2]) for _ in range(1000)])
    assert_same_mean(together, alone)


def test_lanes_share_the_noise_of_a_pass_and_the_next_pass_has_another():
    network = three("shared")[0]
    lanes = Lanes.of([network, network])
    x = data()[0][:1].expand(2, -1, -1)
    first, second = lanes.outputs(x)
    assert torch.allclose(first, second)
    assert not torch.allclose(first, lanes.outputs(x)[0])


def test_training_in_lanes_is_training_alone():
    """Adam, its falling rate and the batches do to a lane what they do to a network by itself."""
    networks, (x, y) = three("plain"), data()
    training = Training(steps=5, batch=9)
    lanes = Lanes.of(networks)
    seen = []
    train(lanes, x, y, training, torch.Generator().manual_seed(2), seen.append)
    assert seen == [0, 1, 2, 3, 4, 5]
    rows = torch.Generator().manual_seed(2)
    batches = [torch.randint(7, (3,), generator=rows) for _ in range(5)]
    for n, network in enumerate(networks):
        optimizer = torch.optim.Adam(network.parameters(), 0.01)
        for step, batch in enumerate(batches):
            optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / 5)
            optimizer.zero_grad()
            network(x[n, batch], y[n, batch]).backward()
            optimizer.step()
        for name, parameter in network.named_parameters():
            assert torch.allclose(lanes.parameters[name][n], parameter, atol=1e-5), name


def test_copies_follow_each_other():
    """Lane = copy · splits + split."""
    values = torch.arange(3.0)[:, None]
    assert copied(values, 2).flatten().tolist() == [0, 1, 2, 0, 1, 2]


def test_splits_of_copies_train_on_their_own_data():
    networks, (x, y) = three("plain"), data()
    lanes = Lanes.of([network for network in (networks[0], networks[1]) for _ in range(3)])
    train(lanes, x, y, Training(steps=3, batch=9), torch.Generator().manual_seed(2), lambda step: None)
    alone = Lanes.of([networks[1]])
    train(alone, x[2:], y[2:], Training(steps=3, batch=3), torch.Generator().manual_seed(2), lambda step: None)
    for name, values in lanes.parameters.items():
        assert torch.allclose(values[5], alone.parameters[name][0], atol=1e-5), name
