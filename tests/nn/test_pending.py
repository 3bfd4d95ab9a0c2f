"""Models converted on the meta device: companions (spreads and priors) get their numbers together with the means."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.bayes import kl
from tests.networks import TiedLM, mlp
from tests.nn.on_meta import LEARNED, META, MODELS, RELATIVE, check, on_meta, poisoned


def initialise_means(model: nn.Module) -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "_rho" not in name and "_prior_" not in name:
                parameter.normal_()


USES: dict[str, Callable[[Any, Tensor], Any]] = {
    "training": lambda model, x: model(x),
    "hold": lambda model, x: flipout.hold(model).__enter__(),
    "kl": lambda model, x: kl(model),
    "summary": lambda model, x: flipout.summary(model),
    "a copy": lambda model, x: None,
}


@pytest.mark.parametrize("distribution", [LEARNED, RELATIVE], ids=["std", "relative"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", MODELS)
def test_the_first_use_initialises_companions(name, use, distribution):
    model = poisoned(on_meta(name, distribution))
    initialise_means(model)
    if use == "a copy":
        model = copy.deepcopy(model)
        kl(model)
    USES[use](model, MODELS[name][1]())
    check(model, distribution)
    assert "prior now" not in repr(model)


def test_a_layer_by_hand():
    with META:
        layer = flipout.nn.Linear(4, 3, distribution=LEARNED)
    poisoned(layer).reset_parameters()
    check(layer, where="weight")
    with META:
        layer = flipout.nn.Linear(4, 3, distribution=LEARNED)
    poisoned(layer)
    initialise_means(layer)
    layer(torch.ones(2, 4))
    check(layer, where="weight")


def test_companions_that_were_written_stay():
    model = poisoned(on_meta("mlp"))
    initialise_means(model)
    with torch.no_grad():
        model[0].weight_rho.fill_(-1.0)
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    model(torch.ones(2, 4)).sum().backward()
    assert (model[0].weight_rho == -1).all()
    assert torch.equal(model[2].weight_rho, flipout.perturb(mlp(), LEARNED)[2].weight_rho)
    assert all(p.grad is not None for group in optimizer.param_groups for p in group["params"] if p.dim() > 1)


def test_a_model_that_was_moved_to_meta_forgets_its_values():
    model = flipout.perturb(mlp(), LEARNED, where="*")
    with torch.no_grad():
        model[0].weight_rho.fill_(7.0)
    poisoned(model.to("meta"))
    initialise_means(model)
    kl(model)
    check(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("distribution", [LEARNED, RELATIVE], ids=["std", "relative"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "tied"])
def test_a_plain_checkpoint_is_assigned(name, distribution, dtype):
    torch.manual_seed(3)
    plain = MODELS[name][0]().to(dtype)
    model = on_meta(name, distribution)
    model.load_state_dict(plain.state_dict(), assign=True)
    assert not any(value.is_meta for value in model.state_dict().values())
    expected = flipout.perturb(plain, distribution, where="*")
    for key, value in model.state_dict().items():
        assert (value.dtype, value.device) == (expected.state_dict()[key].dtype, torch.device("cpu"))
        assert torch.equal(value, expected.state_dict()[key]), key
    x = MODELS[name][1](dtype=dtype)
    with flipout.hold(model, seed=1), flipout.hold(expected, seed=1):
        outputs = model(x), expected(x)
    torch.testing.assert_close(*outputs)
    assert torch.equal(kl(model), kl(expected))


def test_a_plain_checkpoint_is_assigned_to_tied_weights():
    """torch's assignment unties weights. To tie them again, tie the companions too, as the refusal says."""
    model = on_meta("tied")
    model.load_state_dict(TiedLM().state_dict(), assign=True)
    assert not any(value.is_meta for value in model.state_dict().values())
    model.decoder.weight = model.embedding.weight
    with pytest.raises(flipout.errors.InvalidArgument, match=r"model\.decoder\.weight_rho = model\.embedding"):
        model(MODELS["tied"][1]())
    model.decoder.weight_rho = model.embedding.weight_rho
    model.decoder.weight_prior_log_std = model.embedding.weight_prior_log_std
    model(MODELS["tied"][1]())
    check(model)


@pytest.mark.parametrize("assign", [False, True])
def test_a_checkpoint_loads_after_to_empty(assign):
    plain = mlp()
    model = poisoned(on_meta("mlp", RELATIVE))
    model.load_state_dict(plain.state_dict(), assign=assign)
    check(model, RELATIVE)
    full = flipout.perturb(mlp(), RELATIVE, where="*")
    with torch.no_grad():
        full[0].weight_rho.fill_(-1.0)
    for make in (lambda: on_meta("mlp", RELATIVE), lambda: poisoned(on_meta("mlp", RELATIVE))):
        model = make()
        if not assign and model[0].weight.is_meta:
            continue
        model.load_state_dict(full.state_dict(), assign=assign)
        kl(model)
        assert all(torch.equal(value, full.state_dict()[key]) for key, value in model.state_dict().items())


def test_companions_follow_assigned_means():
    model = flipout.perturb(mlp(), LEARNED, where="*")
    rho = model[0].weight_rho
    with torch.no_grad():
        rho.fill_(-1.0)
    model.load_state_dict(mlp().state_dict(), assign=True)
    assert model[0].weight_rho is rho
    model.load_state_dict(mlp().double().state_dict(), assign=True)
    assert all(value.dtype == torch.float64 for value in model.state_dict().values())
    assert (model[0].weight_rho == -1).all()
    assert isinstance(model[0].weight_rho, nn.Parameter)
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()


SCHEMES = ["shared", "flipout", flipout.Flipout(group=2), "independent", "low_rank", "rank_one"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_passes_on_the_meta_device_have_the_right_shapes(name, scheme):
    model, x = on_meta(name, flipout.Gaussian(0.3), scheme=scheme), MODELS[name][1]
    real = flipout.perturb(MODELS[name][0](), flipout.Gaussian(0.3), where="*", scheme=scheme)
    contexts = (lambda m: flipout.sampling(m), lambda m: flipout.hold(m), lambda m: flipout.hold(m, seed=7))
    for context in contexts:
        with context(model), context(real):
            outputs = model(x(device=META)), real(x())
            on_meta_device, expected = (y if isinstance(y, Tensor) else y[0] for y in outputs)
            assert on_meta_device.is_meta
            assert on_meta_device.shape == expected.shape
            on_meta_device.sum().backward()


@pytest.mark.parametrize("distribution", [LEARNED, flipout.DropConnect(0.5)], ids=["learned", "dropconnect"])
def test_local_reparameterisation_and_dropconnect_on_meta(distribution):
    with META:
        scheme = "local_reparam" if distribution is LEARNED else "flipout"
        model = flipout.perturb(mlp(), distribution, scheme=scheme)
        y = model(torch.ones(3, 4))
    assert (y.shape, y.is_meta) == ((3, 3), True)
    y.sum().backward()


def test_a_held_pass_outlives_the_meta_device():
    """Weights that were offloaded to the meta device may come back inside `hold`."""
    state = mlp().state_dict()
    model, real = on_meta("mlp", flipout.Gaussian(0.3)), flipout.perturb(mlp(), flipout.Gaussian(0.3), where="*")
    real.load_state_dict(state)
    x = torch.ones(3, 4)
    with flipout.hold(model, seed=7), flipout.hold(real, seed=7):
        assert model(x.to(META)).is_meta
        model.load_state_dict(state, assign=True)
        assert torch.equal(model(x), real(x))
    torch.manual_seed(1)
    with flipout.hold(on_meta("mlp", flipout.Gaussian(0.3))):
        number = torch.randint(2**63 - 1, ())
    torch.manual_seed(1)
    torch.randint(2**63 - 1, ())
    assert torch.equal(torch.randint(2**63 - 1, ()), number)


def test_saving_and_loading_a_whole_model_keeps_what_is_pending():
    model, buffer = poisoned(on_meta("mlp")), io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    model = torch.load(buffer, weights_only=False)
    initialise_means(model)
    kl(model)
    check(model)
