"""Changes of a converted model are followed if their meaning is clear, and refused if not."""

import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize, prune

import flipout
from flipout import errors
from flipout.bayes import Normal, kl
from tests.networks import TiedLM, encoder, mlp

GAUSSIAN = flipout.Gaussian(0.3)
LEARNED = flipout.MeanField(std=0.3, prior=Normal(0.0, 1.0))
X = torch.linspace(-1, 1, 12).view(3, 4).sin()
TOKENS = torch.arange(12).view(4, 3) % 7


class Stack(nn.Module):
    """Layers of one size, so that each can take the place of another."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(self.fc2(self.fc1(x).tanh()).tanh())


def stack(distribution: Any = GAUSSIAN, **options: Any) -> Any:
    torch.manual_seed(3)
    return flipout.perturb(Stack(), distribution, **options)


def converted_now(model: nn.Module, distribution: Any = GAUSSIAN, **options: Any) -> Any:
    """Return the slow truth: the present model, frozen and converted again."""
    return flipout.perturb(flipout.freeze(copy.deepcopy(model)), distribution, **options)


def check(model: Any, expected: Any, x: Tensor = X) -> None:
    """Compare outputs under one seed and the weights of every example. A forward pass reads one random number."""
    for _ in range(2):
        with flipout.hold(model, seed=7), flipout.hold(expected, seed=7):
            torch.testing.assert_close(model(x), expected(x), rtol=0, atol=0)
            for (name, layer), (_, other) in zip(model.named_modules(), expected.named_modules(), strict=True):
                if isinstance(layer, flipout.nn.Perturbed):
                    ours, theirs = flipout.example_weights(layer), flipout.example_weights(other)
                    assert all(torch.equal(ours[key], theirs[key]) for key in theirs), name
        torch.manual_seed(1)
        torch.randint(2**63 - 1, ())
        once = torch.get_rng_state()
        outputs = []
        for each in (model, expected):
            torch.manual_seed(1)
            outputs.append(each.train()(x))
            assert torch.equal(torch.get_rng_state(), once)
        assert torch.equal(*outputs)


COMPUTED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "prune": (lambda m: prune.l1_unstructured(m, "weight", 0.5), lambda m: prune.remove(m, "weight")),
    "weight_norm": (parametrizations.weight_norm, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "orthogonal": (parametrizations.orthogonal, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "spectral_norm": (parametrizations.spectral_norm, lambda m: parametrize.remove_parametrizations(m, "weight")),
    "old weight_norm": (nn.utils.weight_norm, nn.utils.remove_weight_norm),
    "old spectral_norm": (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
}
USES: dict[str, Callable[[Any], Any]] = {
    "training": lambda m: m(X),
    "a layer alone": lambda m: m.fc1(X),
    "hold": lambda m: flipout.hold(m).__enter__(),
    "sampling": lambda m: flipout.sampling(m).__enter__(),
    "using": lambda m: flipout.using(m, scheme="shared").__enter__(),
    "freeze": flipout.freeze,
    "kl": kl,
    "summary": flipout.summary,
    "perturb": lambda m: flipout.perturb(m, GAUSSIAN, where="*.bias"),
}
old = pytest.mark.filterwarnings("ignore:.*(weight_norm|spectral_norm):FutureWarning")


@old
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", COMPUTED)
def test_computed_weights_are_refused_until_that_is_undone(kind, use):
    model = stack(LEARNED)
    model(X)
    compute, undo = COMPUTED[kind]
    compute(model.fc1)
    biases = [model.fc1.bias, model.fc2.bias]
    with pytest.raises(errors.Unsupported, match=r"fc1 .*its weight is perturbed, but was .*not a Parameter\. \w+ it"):
        USES[use](model)
    assert all(not any("bias" in name for name in layer.flipout.distributions) for layer in (model.fc1, model.fc2))
    assert biases == [model.fc1.bias, model.fc2.bias]
    undo(model.fc1)
    check(model, converted_now(model, LEARNED))
    assert type(model.fc1) is flipout.nn.Linear


@old
@pytest.mark.parametrize("kind", COMPUTED)
def test_the_mean_of_a_computed_weight_is_still_the_plain_network(kind):
    model, plain = stack(), flipout.freeze(stack())
    for each in (model, plain):
        torch.manual_seed(1)
        COMPUTED[kind][0](each.fc1)
    torch.testing.assert_close(model.eval()(X), plain.eval()(X))


@pytest.mark.parametrize("kind", ["prune", "weight_norm"])
def test_computed_weights_are_refused_inside_hold(kind):
    model = stack()
    with flipout.hold(model, seed=1):
        model(X)
        COMPUTED[kind][0](model.fc1)
        for use in (lambda: model(X), lambda: flipout.example_weights(model.fc1)):
            with pytest.raises(errors.Unsupported, match="fc1"):
                use()


def test_computed_weights_without_noise_are_allowed():
    model = stack(where="fc1.weight")
    prune.l1_unstructured(model.fc1, "bias", 0.5)
    parametrizations.weight_norm(model.fc2)
    with flipout.hold(model, seed=1):
        model(X)
        weight = flipout.example_weights(model.fc1)["weight"]
        hidden = torch.stack([w @ x for w, x in zip(weight, X, strict=True)]) + model.fc1.bias
        torch.testing.assert_close(model(X), model.fc3(model.fc2(hidden.tanh()).tanh()))
    assert model.fc1.bias.eq(0).sum() == 2


def test_computed_weights_of_layers_made_by_hand_are_refused():
    layer = flipout.nn.Linear(4, 3, distribution=GAUSSIAN)
    prune.l1_unstructured(layer, "weight", 0.5)
    with pytest.raises(errors.Unsupported, match=r"pruned.*prune\.remove\(layer, 'weight'\)"):
        layer(X)
    attention = flipout.nn.MultiheadAttention(4, 2, distribution=GAUSSIAN)
    parametrizations.weight_norm(attention.out_proj)
    with pytest.raises(errors.Unsupported, match=r"its out_proj\.weight is perturbed"):
        attention(X, X, X)


def _untie(model: Any) -> None:
    model.decoder.weight = nn.Parameter(model.decoder.weight.detach().clone())


@pytest.mark.parametrize("padding", [None, 2])
def test_untied_weights_have_separate_noise(padding):
    plain = TiedLM()
    plain.embedding.padding_idx = padding
    model = flipout.perturb(plain, GAUSSIAN, where="*.weight")
    model(TOKENS)
    _untie(model)
    check(model, converted_now(model, where="*.weight"), TOKENS)
    with flipout.hold(model, seed=1):
        model(TOKENS)
        noise = [flipout.example_weights(layer)["weight"] - layer.weight for layer in (model.embedding, model.decoder)]
    assert (noise[0] != noise[1])[:, torch.arange(7) != padding].all()
    if padding is not None:
        assert not noise[0][:, padding].any()
        assert noise[1][:, padding].all()


@pytest.mark.parametrize("padding", [None, 2])
def test_tied_weights_have_one_noise(padding):
    plain = TiedLM()
    plain.embedding.padding_idx = padding
    _untie(plain)
    model = flipout.perturb(plain, GAUSSIAN, where="*.weight")
    model(TOKENS)
    model.decoder.weight = model.embedding.weight
    check(model, converted_now(model, where="*.weight"), TOKENS)
    with flipout.hold(model, seed=1):
        model(TOKENS)
        assert torch.equal(*(flipout.example_weights(layer)["weight"] for layer in (model.embedding, model.decoder)))


def test_one_parameter_with_two_spreads_is_refused_until_they_are_tied():
    model = stack(LEARNED)
    model.fc2.weight = model.fc1.weight
    for name, use in USES.items():
        if name != "a layer alone":
            with pytest.raises(errors.InvalidArgument, match=r"model\.fc2\.weight_rho = model\.fc1\.weight_rho"):
                use(model)
    model.fc2.weight_rho = model.fc1.weight_rho
    check(model, converted_now(model, LEARNED))


@pytest.mark.parametrize("noise", [flipout.Gaussian(0.1), flipout.Rademacher(0.3)])
def test_one_parameter_with_two_noises_is_refused(noise):
    model = flipout.perturb(stack(where="fc1.weight"), noise, where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match=r"fc1\.weight and fc2\.weight are one Parameter with two noises"):
        model(X)
    model = flipout.perturb(stack(where="fc1.weight"), GAUSSIAN, where="fc2.weight", scheme="shared")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match="two noises"):
        model(X)
    model = flipout.perturb(stack(where="fc1.weight"), flipout.Gaussian(torch.tensor(0.3)), where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match="two noises"):
        model(X)


def test_equal_noises_may_meet_in_one_parameter():
    model = flipout.perturb(stack(where="fc1.weight"), flipout.Gaussian(0.3), where="fc2.weight")
    model.fc2.weight = model.fc1.weight
    check(model, converted_now(model, where=["fc1.weight", "fc2.weight"]))


def test_a_perturbed_parameter_that_a_plain_layer_reads_is_refused():
    model = stack(where="fc1.weight")
    model(X)
    model.fc3.weight = model.fc1.weight
    with pytest.raises(errors.Unsupported, match=r"fc3\.weight of a Linear is the Parameter fc1\.weight.*untie"):
        model(X)
    model.fc3.weight = nn.Parameter(model.fc3.weight.detach().clone())
    check(model, converted_now(model, where="fc1.weight"))


def test_local_reparameterisation_of_a_weight_that_is_tied_later_is_refused():
    model = stack(scheme="local_reparam")
    model.fc2.weight = model.fc1.weight
    with pytest.raises(errors.WeightReused, match=r"fc1\.weight and fc2\.weight are one Parameter"):
        model(X)


def _insert(model: Any) -> None:
    model.insert(1, copy.deepcopy(model[0]))


def _swap(model: Any) -> None:
    model[0], model[2] = model[2], model[0]


def _by_hand(model: Any) -> None:
    torch.manual_seed(4)
    model[2] = flipout.nn.Linear(4, 4, distribution=GAUSSIAN)


def _rooted(model: Any) -> None:
    model[2] = flipout.perturb(mlp(), GAUSSIAN)


def _delete(model: Any) -> None:
    del model[0]


def _replace_parameter(model: Any) -> None:
    model[0].weight = nn.Parameter(torch.ones(4, 4))


def _replace_after_deletion(model: Any) -> None:
    """The new layer may get the memory address of the old one."""
    copied = copy.deepcopy(model[2])
    model[2] = None
    gc.collect()
    model[2] = copied


CHANGES = [
    _insert,
    _swap,
    _by_hand,
    _rooted,
    _delete,
    _replace_parameter,
    _replace_after_deletion,
    lambda model: model.append(copy.deepcopy(model[0])),
    lambda model: model.__setitem__(2, copy.deepcopy(model[0])),
    lambda model: model.__setitem__(2, pickle.loads(pickle.dumps(model[0]))),
    lambda model: model.__setitem__(2, nn.Sequential(copy.deepcopy(model[0]), nn.Tanh())),
    lambda model: model.__setitem__(2, stack().fc2),
    lambda model: model.__setitem__(2, model[0]),
    lambda model: model[0].__setattr__("weight", copy.deepcopy(model[2].weight)),
]


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_layers_added_replaced_or_removed(change, called):
    torch.manual_seed(3)
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), GAUSSIAN)
    if called:
        model(X)
    CHANGES[change](model)
    check(model, converted_now(model))
    labels = {module.flipout.label for module in model.modules() if isinstance(module, flipout.nn.Perturbed)}
    assert labels == {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def test_an_added_plain_layer_stays_plain():
    model = stack()
    model(X)
    model.fc2 = nn.Linear(4, 4)
    check(model, converted_now(model, where=["fc1.weight", "fc3.weight"]))


def test_a_copied_layer_alone_is_its_own_root():
    model = stack()
    layer = copy.deepcopy(model.fc1)
    assert not torch.equal(layer(X), layer(X))
    with flipout.hold(model, seed=1), flipout.hold(layer, seed=1):
        model(X)
        assert torch.equal(layer(X), model.fc1(X))
    for _ in range(20):
        model.fc2 = copy.deepcopy(model.fc2)
        model(X)
    assert len(model.fc2.flipout.roots) == 1


def test_a_layer_of_two_models_sees_the_draw_of_the_one_that_runs():
    first, second = stack(), stack()
    second.fc2 = first.fc2
    for model in (first, second, first):
        check(model, converted_now(model))


def test_a_layer_added_to_a_time_major_transformer_has_its_batch_dim():
    model = flipout.perturb(encoder(batch_first=False), GAUSSIAN)
    model(torch.randn(5, 3, 8))
    model.layers[0].linear1 = flipout.nn.Linear(8, 16, distribution=GAUSSIAN)
    check(model, converted_now(model), torch.randn(5, 3, 8))


def test_another_shape_needs_another_spread():
    model = stack(LEARNED)
    model.fc1.weight, model.fc1.in_features = nn.Parameter(torch.ones(4, 5)), 5
    with pytest.raises(errors.Unsupported, match=r"weight now has shape \(4, 5\), but its weight_rho has shape"):
        model(torch.ones(2, 5))
    model = stack()
    model.fc1.weight, model.fc1.in_features = nn.Parameter(torch.ones(4, 5)), 5
    check(model, converted_now(model), torch.ones(2, 5))


@pytest.mark.parametrize(
    "context", [flipout.hold, flipout.sampling, lambda model: flipout.using(model, scheme="shared")]
)
@pytest.mark.parametrize("training", [True, False])
def test_a_context_keeps_to_the_layers_it_was_opened_on(context, training):
    for change in (
        lambda m: setattr(m, "fc2", copy.deepcopy(m.fc1)),
        lambda m: setattr(m.fc2, "weight", m.fc1.weight),
    ):
        model = stack().train(training)
        with context(model), flipout.sampling(model):
            model(X)
            change(model)
            with pytest.raises(errors.Unsupported, match=r"fc2: added, tied or untied inside `hold`"):
                model(X)
        check(model, converted_now(model))


@pytest.mark.parametrize("distribution", [GAUSSIAN, LEARNED])
def test_functional_call_keeps_keys_and_ties(distribution):
    model: Any = flipout.perturb(TiedLM(), distribution, where="*.weight")
    values = {name: parameter.detach() + 1 for name, parameter in model.named_parameters()}
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    expected = []
    for each, call in ((other, other), (model, lambda x: functional_call(model, values, (x,)))):
        each(TOKENS)
        torch.manual_seed(1)
        expected.append(call(TOKENS))
    torch.testing.assert_close(*expected)
    untied = values | {"decoder.weight": values["embedding.weight"] + 1}
    torch.manual_seed(1)
    functional_call(model, untied, (TOKENS,), tie_weights=False)
    keys = [plan.roots[0][1]["weight"] for plan in (model.embedding.flipout, model.decoder.flipout)]
    assert keys[0] == keys[1]
    check(model, converted_now(model, distribution, where="*.weight"), TOKENS)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_changed_model(how):
    model = stack()
    model.fc2 = copy.deepcopy(model.fc1)
    for other in (how(model), how(how(model))):
        check(other, converted_now(model))
        other.fc3 = how(other.fc1)
        check(other, converted_now(other))


def test_a_copied_root_inside_a_root():
    """The copy of an outer root is recognised before it ever runs."""
    inner = flipout.perturb(nn.Sequential(nn.Linear(4, 4)), GAUSSIAN)
    outer: Any = flipout.perturb(nn.Sequential(inner, nn.Linear(4, 4)), GAUSSIAN)
    other = copy.deepcopy(outer)
    for each in (outer, other):
        flipout.perturb(each[0], GAUSSIAN, where="*.bias")
        assert len(each[0][0].flipout.roots) == 2
        assert not torch.equal(each(X), each(X))


def test_replicas_of_data_parallel_are_refused_as_such():
    model = stack()
    replica: Any = model._replicate_for_data_parallel()
    for name, module in model.named_children():
        setattr(replica, name, module._replicate_for_data_parallel())
        getattr(replica, name).weight, getattr(replica, name).bias = module.weight + 0, module.bias + 0
    with pytest.raises(errors.Unsupported, match=r"nn\.DataParallel shares one draw"):
        replica(X)
    check(model, converted_now(model))


def test_a_deleted_model_frees_its_memory_at_once():
    model = stack()
    model(X)
    with flipout.hold(model):
        model(X)
    gone = weakref.ref(model.fc1)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_a_check_takes_no_python_call_per_layer():
    counts = []
    for depth in (2, 40):
        model: Any = flipout.perturb(nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth))), GAUSSIAN)
        model(X)
        structure = model[0].flipout.roots[0][0].structure
        calls = 0

        def count(frame: Any, event: str, arg: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            known = structure.is_known(model)
        finally:
            sys.setprofile(None)
        assert known
        counts.append(calls)
    assert counts[0] == counts[1] <= 4


def test_compiled_models_are_checked_when_they_are_traced():
    torch._dynamo.reset()
    model = stack()
    fast: Any = torch.compile(model, fullgraph=True, backend="eager")
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(model.fc2, "weight", model.fc1.weight),
        lambda: setattr(model.fc2, "weight", nn.Parameter(model.fc1.weight.detach().clone())),
        lambda: setattr(model, "fc3", copy.deepcopy(model.fc1)),
    ]
    for change in changes:
        change()
        expected = converted_now(model)
        torch.manual_seed(1)
        y = fast(X)
        torch.manual_seed(1)
        torch.testing.assert_close(y, expected(X))
    prune.l1_unstructured(model.fc1, "weight", 0.5)
    with pytest.raises(Exception, match=r"fc1 .*was pruned since"):
        fast(X)


def test_copies_share_what_was_compiled():
    torch._dynamo.reset()
    model = stack()
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        fast: Any = torch.compile(copy.deepcopy(model), fullgraph=True, backend="eager")
        assert not torch.equal(fast(X), fast(X))
