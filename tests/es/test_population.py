"""A population is the model under each member's own weights, whatever the layout of its input."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors, es
from flipout.es._seeds import seed_of
from flipout.nn.eval_mode import in_eval
from tests.es.toys import X, strategy
from tests.networks import TiedLM, convnet, encoder, mlp
from tests.oracles import weights_of_each


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y, (h, _) = self.lstm(x)
        return {"last": self.head(y[:, -1]), "rest": (h.transpose(0, 1), 7)}


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (mlp, (4,)),
    "convolutions": (convnet, (2, 6, 6)),
    "attention": (lambda: encoder(layers=1), (3, 8)),
    "recurrent": (Last, (3, 4)),
}


def leaves(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else ()
    return [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize("image", [False, True], ids=["plain", "mirrored"])
@pytest.mark.parametrize("scheme", ["flipout", "independent", "low_rank", "rank_one"])
@pytest.mark.parametrize("name", MODELS)
def test_every_member_is_a_network(name: str, scheme: str, image: bool) -> None:
    """Compare with a plain module that has the weights of one member."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    plain, model = make().double().eval(), make().double().train()
    plain.load_state_dict(model.state_dict())
    evolution = strategy(None, model, antithetic=True, scheme=scheme)
    population = evolution.ask(2)[2 + 6 * image]
    assert (population.first, population.size, population.antithetic) == (4, 2, image)
    x = torch.randn(2, 5, *shape, dtype=torch.float64)
    batched = population(x, batched=True)
    alone = population(x[:, 0])
    with in_eval(model), flipout.hold(model, seed_of(0, 0), first=4, group=2, antithetic=image):
        model(x[:, 0])  # fixes the number of examples
        weights = weights_of_each(model)
    for member in range(2):
        member_weights = {key: weight[member] for key, weight in weights.items()}
        truth = torch.func.functional_call(plain, member_weights, (x[member],))
        for ours, expected in zip(leaves(batched), leaves(truth), strict=True):
            torch.testing.assert_close(ours[member], expected)
        for ours, expected in zip(leaves(alone), leaves(truth), strict=True):
            torch.testing.assert_close(ours[member], expected[0])
    assert model.training
    assert all(module.training for module in model.modules())
    assert not any(leaf.requires_grad for leaf in leaves(batched))


@pytest.mark.parametrize("most", [3, 5, 8])
@pytest.mark.parametrize("shared", [False, True], ids=["own inputs", "one batch"])
def test_members_with_many_rows_are_the_same_in_every_chunk(shared: bool, most: int) -> None:
    """With 32 rows or more, members' weights are formed. Chunks may begin and end within a group."""
    torch.manual_seed(0)
    plain, model = mlp().eval(), mlp()
    plain.load_state_dict(model.state_dict())
    evolution = strategy(None, model, antithetic=True, population=24, group=8)
    x = torch.randn(40, 4).expand(12, 40, 4) if shared else torch.randn(12, 40, 4)
    for image, whole in enumerate(evolution.ask()):
        y = whole(x)
        parts = [part for part in evolution.ask(most) if part.antithetic == image]
        assert torch.equal(torch.cat([part(x[part.first :][: part.size]) for part in parts]), y)
        with in_eval(model), flipout.hold(model, seed_of(0, 0), group=4, antithetic=bool(image)):
            model(x[:, 0])  # fixes the number of examples
            weights = weights_of_each(model)
        for member in range(12):
            member_weights = {key: weight[member] for key, weight in weights.items()}
            torch.testing.assert_close(y[member], torch.func.functional_call(plain, member_weights, (x[member],)))


@pytest.mark.parametrize("image", [False, True], ids=["plain", "mirrored"])
@pytest.mark.parametrize("scheme", ["flipout", "independent", "low_rank", "rank_one"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_formed_once_are_those_of_every_call(name: str, scheme: Any, image: bool, monkeypatch: Any) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, noise = make().double(), flipout.Gaussian(0.3)
    flipout.perturb(model, noise, scheme=flipout.LowRank(1) if scheme == "low_rank" else scheme, where="*")
    population = es.Population(model, 3, 2, 4, 6, 4, image)
    first, second = torch.randn(2, 6, *shape, dtype=torch.float64)
    expected = [leaves(population(x)) for x in (first, second)]
    with population.formed() as members:
        outputs = leaves(members(first))
        if name in ("mlp", "convolutions"):  # attention and recurrent layers draw for other products, too
            monkeypatch.setattr(flipout.Gaussian, "noise", pytest.fail)
        torch.testing.assert_close([outputs, leaves(members(second))], expected)
    assert not any(leaf.requires_grad for leaf in outputs)


def test_tokens_and_tied_weights() -> None:
    evolution = strategy(None, TiedLM().double())
    tokens = torch.randint(7, (24, 3, 2))
    (population,) = evolution.ask()
    torch.testing.assert_close(population(tokens, batched=True)[:, 1], population(tokens[:, 1]))


def test_members_differ_and_each_is_the_same_in_every_call() -> None:
    (population,) = strategy(None).ask()
    x = X[:1].expand(24, 4)
    assert torch.equal(population(x), population(x))
    assert len(population(x).unique(dim=0)) == 24
    assert len(population) == population.size == 24


def test_the_same_numbers_for_all_parts_of_a_generation() -> None:
    evolution = strategy(None)
    first, *others = (torch.rand(3, generator=part.generator()) for part in evolution.ask(5))
    assert all(torch.equal(first, other) for other in others)
    evolution.tell(torch.arange(24.0))
    assert not torch.equal(first, torch.rand(3, generator=evolution.ask()[0].generator()))


@pytest.mark.parametrize("shape", [(24,), (23, 5, 4), (5, 24, 4)])
def test_inputs_that_are_no_batches_of_members(shape: tuple[int, ...]) -> None:
    (population,) = strategy(None).ask()
    with pytest.raises(errors.InvalidInput, match=r"expected \(24, batch, …\)"):
        population(torch.zeros(shape, dtype=torch.float64), batched=True)


def test_no_input_at_all() -> None:
    (population,) = strategy(None).ask()
    with pytest.raises(errors.InvalidInput, match="no tensor given"):
        population(batched=True)


def test_another_number_of_members() -> None:
    (population,) = strategy(None).ask()
    with pytest.raises(errors.ExampleCount, match="a population of 24 members"):
        population(torch.zeros(23, 4, dtype=torch.float64))


def test_an_output_without_rows() -> None:
    evolution = strategy(None, nn.Sequential(nn.Linear(4, 2), nn.Flatten(0)).double())
    with pytest.raises(errors.InvalidInput, match="expected these rows in dimension 0"):
        evolution.ask()[0](X.expand(24, 5, 4), batched=True)


def test_a_population_is_not_guessed() -> None:
    """Without `batched`, (members, batch, …) reaches the layer unchanged, and a convolution refuses it."""
    evolution = strategy(None, convnet().double())
    with pytest.raises(errors.InvalidInput, match=r"input of shape .*population\(x, batched=True\)"):
        evolution.ask()[0](torch.zeros(24, 3, 2, 6, 6, dtype=torch.float64))
    with pytest.raises(
        errors.ExampleCount, match=r"In a population of 24 members: inputs are \(24, …\).*x\.expand\(popul"
    ):
        evolution.ask()[0](torch.zeros(7, 2, 6, 6, dtype=torch.float64))
    assert isinstance(evolution.ask()[0], es.Population)


def test_formed_members_are_there_in_their_own_context_alone() -> None:
    x = torch.randn(12, 4, dtype=torch.float64)
    first, second = strategy().ask(12)
    with first.formed() as members:
        assert torch.equal(members(x), members(x))
        with second.formed(), pytest.raises(errors.InvalidInput, match="inside another"):
            members(x)
    with pytest.raises(errors.InvalidInput, match="outside its `with`"):
        members(x)


def test_a_population_ends_with_its_generation() -> None:
    evolution, x = strategy(), torch.randn(24, 4, dtype=torch.float64)
    (before,) = evolution.ask()
    before(x)
    evolution.tell(torch.arange(24.0))
    with pytest.raises(errors.InvalidInput, match="belongs to generation 0, but the strategy is at generation 1"):
        before(x)
    evolution.ask()[0](x)
