"""perturb(): the same objects, all or none, composition and roots."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN, Shared, Siamese, TiedLM, convnet, encoder, mlp, same_state, state


@pytest.mark.parametrize("distribution", [GAUSSIAN, flipout.MeanField()])
@pytest.mark.parametrize("make", [mlp, convnet, encoder, TiedLM, Shared])
def test_parameters_are_the_same_objects(make, distribution):
    model = make()
    before, classes = dict(model.named_parameters()), {name: type(m) for name, m in model.named_modules()}
    assert flipout.perturb(model, distribution) is model
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert all(name.endswith("_rho") for name in after.keys() - before.keys())
    assert all(isinstance(module, classes[name]) for name, module in model.named_modules())


def test_optimizer_made_before_still_steps():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    flipout.perturb(model, GAUSSIAN)
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("make", [mlp, convnet, encoder, TiedLM])
def test_state_dicts_load_both_ways(make):
    plain, noisy = make(), flipout.perturb(make(), GAUSSIAN)
    noisy.load_state_dict(plain.state_dict())
    other = make()
    other.load_state_dict(noisy.state_dict())
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in plain.state_dict().items())


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("make", [mlp, convnet, encoder, TiedLM, lambda: nn.MultiheadAttention(8, 2, kdim=6)])
def test_plain_checkpoint_loads_strictly_into_mean_field(make, assign):
    plain, noisy = make(), flipout.perturb(make(), flipout.MeanField(relative=0.5))
    spreads = {k: v.clone() for k, v in noisy.state_dict().items() if k.endswith("_rho")}
    noisy.load_state_dict(plain.state_dict(), strict=True, assign=assign)
    loaded = noisy.state_dict()
    assert spreads
    assert all(torch.equal(loaded[k], v) for k, v in (spreads | plain.state_dict()).items())
    assert "out_proj.weight_rho" in spreads or not isinstance(noisy, nn.MultiheadAttention)


def test_a_checkpoint_without_the_mean_is_still_refused():
    noisy = flipout.perturb(mlp(), flipout.MeanField())
    with pytest.raises(RuntimeError, match="weight_rho"):
        noisy.load_state_dict({k: v for k, v in noisy.state_dict().items() if not k.startswith("0.weight")})


def test_tied_weights_share_their_spread_and_their_perturbation():
    model = flipout.perturb(TiedLM(), flipout.MeanField(std=0.5), where="*.weight")
    assert model.decoder.weight is model.embedding.weight
    assert model.decoder.weight_rho is model.embedding.weight_rho
    with flipout.hold(model):
        model(torch.randint(7, (4, 3)))
        embedded, decoded = (flipout.example_weights(m)["weight"] for m in (model.embedding, model.decoder))
    assert torch.equal(embedded, decoded)
    assert not torch.equal(embedded[0], embedded[1])


def test_a_tied_parameter_is_chosen_wherever_it_is_used():
    model = flipout.perturb(TiedLM(), GAUSSIAN, where="decoder.weight")
    assert isinstance(model.embedding, flipout.nn.Embedding)
    assert type(model.hidden) is nn.Linear


def test_a_layer_under_two_parents_is_one_layer():
    model: Any = flipout.perturb(Shared(), GAUSSIAN)
    assert model.left[0] is model.right[1]
    with flipout.hold(model):
        assert torch.equal(model.left[0](x := torch.randn(3, 4)), model.right[1](x))
    other: Any = flipout.perturb(Shared(), GAUSSIAN, where="right.1.weight")
    assert set(other.left[0].flipout.distributions) == {"weight"}


def test_hooks_are_kept():
    model, seen = mlp(), []
    model.register_forward_hook(lambda *_: seen.append("root"))
    model[0].register_forward_pre_hook(lambda *_: seen.append("layer"))
    model[0].weight.register_hook(lambda grad: seen.append("grad"))
    flipout.perturb(model, GAUSSIAN)
    model(torch.randn(2, 4)).sum().backward()
    assert seen == ["layer", "root", "grad"]


def test_composition_of_two_calls():
    model = flipout.perturb(mlp(), GAUSSIAN, where="0.*")
    flipout.perturb(model, flipout.Rademacher(0.1), scheme="independent", where="2.weight")
    assert [row.noise for row in flipout.summary(model).rows] == [
        "Gaussian(std=0.3)",
        "Gaussian(std=0.3)",
        "Rademacher(std=0.1)",
        "",
    ]
    assert len(model._forward_pre_hooks) == 1
    assert isinstance(model[0].flipout.scheme, flipout.Flipout)
    assert isinstance(model[2].flipout.scheme, flipout.Independent)


def test_a_second_call_may_add_parameters_to_a_layer_but_not_change_its_scheme():
    model = flipout.perturb(mlp(), GAUSSIAN)
    before = state(model)
    with pytest.raises(errors.InvalidArgument, match=r"scheme=Shared.*perturbed already, with scheme=Flipout"):
        flipout.perturb(model, GAUSSIAN, scheme="shared", where="*.bias")
    with pytest.raises(errors.InvalidArgument, match=r"batch_dim=1 given.*batch_dim=None"):
        flipout.perturb(model, GAUSSIAN, where="*.bias", batch_dim=1)
    assert same_state(before, state(model))
    flipout.perturb(model, flipout.MeanField(), where="*.bias")
    assert set(model[0].flipout.distributions) == {"weight", "bias"}
    model(torch.randn(3, 4)).sum().backward()
    assert model[0].bias_rho.grad is not None


@pytest.mark.parametrize("where", [None, "0.weight", "0.*", lambda name: name == "0.weight"])
def test_already_perturbed(where):
    model = flipout.perturb(mlp(), flipout.MeanField())
    before = state(model)
    with pytest.raises(errors.AlreadyPerturbed, match="freeze"):
        flipout.perturb(model, GAUSSIAN, where=where)
    assert same_state(before, state(model))


def test_a_parent_takes_over_the_root_of_its_child():
    child: Any = flipout.perturb(Siamese(), GAUSSIAN)
    parent: Any = nn.ModuleDict({"child": child, "head": nn.Linear(3, 2)})
    flipout.perturb(parent, GAUSSIAN)
    assert not child._forward_pre_hooks
    assert len(parent._forward_pre_hooks) == 1
    assert child.tower.flipout.label == "child.tower"
    assert {root for m in (child.tower, parent["head"]) for root, _ in m.flipout.roots} == {
        child.tower.flipout.roots[0][0]
    }


def test_a_child_perturbed_later_still_sees_the_parents_draw():
    parent = nn.Sequential(Siamese())
    parent.forward = lambda a: parent[0](a, a) + parent[0](a, a)  # pyright: ignore
    flipout.perturb(parent, GAUSSIAN)
    flipout.perturb(parent[0], GAUSSIAN, where="*.bias")
    outputs = parent(torch.randn(3, 4))
    assert all(torch.equal(outputs[0], y) for y in outputs)
    assert not torch.equal(parent(x := torch.randn(3, 4))[0], parent(x)[0])


def test_two_models_that_share_a_layer_are_both_roots():
    class Twice(nn.Module):
        def __init__(self, trunk: nn.Linear) -> None:
            super().__init__()
            self.trunk, self.head = trunk, nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.trunk(x), self.head(self.trunk(x))

    trunk = nn.Linear(4, 4)
    actor, critic = (flipout.perturb(Twice(trunk), GAUSSIAN, where=where) for where in ("*.weight", "head.*"))
    x = torch.randn(3, 4)
    for model in (actor, critic):
        model.head.load_state_dict({"weight": torch.eye(4)[:2], "bias": torch.zeros(2)})
        with flipout.using(model.head, scheme="shared"), flipout.hold(model.head, seed=0):
            hidden, y = model(x)
            kernel = flipout.example_weights(model.head)["weight"][0]
            bias = flipout.example_weights(model.head)["bias"][0]
        torch.testing.assert_close(y, hidden @ kernel.T + bias)  # both calls of the trunk saw one draw
        with flipout.hold(model, seed=1), flipout.hold(model, seed=1):
            assert torch.equal(model(x)[0], model(x)[0])


def test_layers_made_by_hand_are_adopted():
    model: Any = nn.Sequential(flipout.nn.Linear(4, 4, distribution=GAUSSIAN), nn.Linear(4, 4))
    flipout.perturb(model)
    assert type(model[1]) is nn.Linear
    assert model[0].flipout.label == "0"
    x = torch.randn(3, 4)
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize("adopted", [False, True])
def test_the_padding_row_of_an_embedding_made_by_hand_is_quiet(adopted):
    model: Any = nn.Sequential(flipout.nn.Embedding(5, 3, padding_idx=2, distribution=GAUSSIAN, where="weight"))
    if adopted:
        flipout.perturb(model)
    with flipout.hold(model):
        model(torch.arange(5).expand(4, 5))
        noise = flipout.example_weights(model[0])["weight"] - model[0].weight
    assert not noise[:, 2].any()
    assert noise[:, :2].all()


def test_adoption_takes_the_example_dimension():
    model = flipout.perturb(nn.Sequential(flipout.nn.Linear(4, 4, distribution=GAUSSIAN)), batch_dim=1)
    with flipout.hold(model):
        model(torch.randn(5, 3, 4))
        assert flipout.example_weights(model[0])["weight"].shape == (3, 4, 4)


def test_a_bare_layer_is_a_model():
    layer = flipout.perturb(nn.Linear(4, 3), flipout.MeanField())
    assert type(layer) is flipout.nn.Linear
    layer(torch.randn(2, 4)).sum().backward()
    assert layer.weight_rho.grad is not None
    assert str(flipout.summary(layer)).splitlines()[1].startswith("weight ")


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_conversion_without_gradients_can_be_trained(context):
    model = mlp()
    with context():
        flipout.perturb(model, flipout.MeanField(relative=0.1))
        model(torch.randn(3, 4))
    model(torch.randn(3, 4)).sum().backward()
    assert all(p.grad is not None and not p.is_inference() for p in model.parameters())


def test_conversion_copies_no_weights():
    model = nn.Sequential(*(nn.Linear(1000, 1000, device="meta") for _ in range(100)))
    flipout.perturb(model, GAUSSIAN)
    assert all(isinstance(layer, flipout.nn.Linear) for layer in model)


def test_moving_after_conversion():
    model = flipout.perturb(mlp(), flipout.MeanField()).double()
    assert model(torch.randn(3, 4, dtype=torch.float64)).dtype == torch.float64
    assert model.to(torch.bfloat16)(torch.randn(3, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_share_base_outlives_a_second_call():
    model = flipout.perturb(mlp(), GAUSSIAN, where="0.weight", share_base=True)
    flipout.perturb(model, GAUSSIAN, where="2.weight")
    assert model[2].flipout.roots[0][0].share_base
    flipout.perturb(model, GAUSSIAN, where="2.bias", share_base=False)
    assert not model[2].flipout.roots[0][0].share_base


def test_a_wrapped_model_gets_no_parameters_that_its_wrapper_does_not_know():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(mlp())
        with pytest.raises(errors.Unsupported, match="Perturb first, then wrap"):
            flipout.perturb(wrapped, flipout.MeanField())
        flipout.perturb(wrapped, GAUSSIAN)  # adds none
    finally:
        dist.destroy_process_group()
