"""Many small Parameters of one shape: the same KL, in a few operations for all of them."""

import torch
import torch.distributions as td
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.overrides import TorchFunctionMode

import flipout
from flipout.bayes import Laplace, Normal, _kl, _small_terms, kl, kl_terms


def stack(depth: int, prior: object = None) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(depth)))
    flipout.perturb(model, flipout.MeanField(prior=prior or Normal(0.1, 0.7)), where="*")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_rho"):
                parameter.uniform_(-3, 1)
    return model


class Calls(TorchFunctionMode):
    """Counts the torch functions that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        self.count[name] = self.count.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def test_twelve_layers_take_as_many_operations_as_three() -> None:
    counts = []
    for depth in (3, 12):
        model = stack(depth)
        with Calls() as calls:
            kl(model)
        counts.append([calls.count[name] for name in ("softplus", "log", "square", "sum")])
    assert counts[0] == counts[1]


def test_each_term_and_its_gradient_is_that_of_its_parameter() -> None:
    for prior in (Normal(0.1, 0.7), Laplace(0.1, 0.7), Normal(0.1, 0.7, learn_scale=True)):
        model = stack(4, prior)
        with torch.no_grad():  # every Parameter has numbers of its own, as after loading or learning
            for number, layer in enumerate(model):
                values = {**dict(layer.named_buffers()), **dict(layer.named_parameters())}
                for name, value in values.items():
                    if "prior" in name:
                        value.add_(0.1 * number)
        found = kl_terms(model)
        leaves = list(model.parameters())
        gradients = torch.autograd.grad(torch.stack(list(found.values())).sum(), leaves)
        terms = {posterior.name: _kl._term(posterior, 1) for posterior in _kl.with_priors(model)}
        expected = torch.autograd.grad(torch.stack(list(terms.values())).sum(), leaves)
        torch.testing.assert_close(found, terms)
        torch.testing.assert_close(gradients, expected)


def test_the_sum_is_that_of_torch() -> None:
    model, total = stack(5), torch.zeros(())
    for layer in model:
        for name in ("weight", "bias"):
            q = td.Normal(layer.get_parameter(name), softplus(layer.get_parameter(f"{name}_rho")))
            total = total + td.kl_divergence(q, td.Normal(0.1, 0.7)).sum()
    torch.testing.assert_close(kl(model), total)


def test_large_parameters_and_other_posteriors_go_alone(monkeypatch) -> None:
    model = nn.Sequential(nn.Embedding(4, 3, padding_idx=1), nn.Embedding(4, 3, padding_idx=1), nn.Linear(3, 3))
    flipout.perturb(model, flipout.MeanField(prior=Normal(0.0, 1.0)), where="*")
    assert _small_terms.small_terms(_kl.with_priors(model)) == {}  # rows without noise, and single shapes
    assert _small_terms.small_terms(_kl.with_priors(stack(2)))
    monkeypatch.setattr(_small_terms, "_MOST", 8)
    sizes = {posterior.parameter.numel() for posterior in _small_terms.small_terms(_kl.with_priors(stack(2)))}
    assert sizes == {3}


def test_the_posteriors_are_looked_up_once(monkeypatch) -> None:
    model, seen = stack(2), []

    def count(model: nn.Module) -> list:
        seen.append(model)
        return original(model)

    original = _kl.posteriors
    monkeypatch.setattr(_kl, "posteriors", count)
    assert isinstance(kl(model), Tensor)
    assert len(seen) == 1
