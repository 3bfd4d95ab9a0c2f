"""Models called with keywords that return more than a tensor: ELBO, predict, measure, decompose and populations."""

import copy
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import flipout
from flipout import bayes, errors, variance
from flipout._model_calls import model_call, select, select_tensor
from flipout.es import EvolutionStrategy
from tests.zoo.oracle import weights_by_example

transformers = pytest.importorskip("transformers")
NOISE = flipout.MeanField(std=0.1, prior=bayes.Normal())
A, B = torch.randn(6, 3).double(), torch.randn(6, 2).double()
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class Pair(NamedTuple):
    scores: Tensor
    features: Tensor


class Two(nn.Module):
    """Takes two inputs by name, and returns what `form` says."""

    def __init__(self, form: str = "dict") -> None:
        super().__init__()
        self.form, self.first, self.second = form, nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, a: Tensor, b: Tensor, *, scale: float = 1.0, mask: None = None) -> Any:
        features = self.first(a).tanh() * scale
        scores = features + self.second(b)
        if self.form == "tensor":
            return scores
        fields = {"scores": scores, "features": features}
        return Pair(**fields) if self.form == "tuple" else fields


def two(form: str, noise: flipout.Distribution = NOISE) -> Any:
    torch.manual_seed(0)
    return flipout.perturb(Two(form).double(), noise)


def classifier() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_labels=3,
        pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForSequenceClassification(config).double().eval()


def tokens() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 11, (4, 5), generator=generator)
    ids[0, 3:] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


CALLS = [
    pytest.param("dict", {"a": A, "b": B, "mask": None}, "scores", id="keywords, a field"),
    pytest.param("dict", [A, B], lambda returned: returned["scores"], id="a list, a function"),
    pytest.param("tuple", (A, B), 0, id="a tuple, a position"),
    pytest.param("tuple", {"a": A, "b": B}, "scores", id="keywords, a name of a tuple"),
]


@pytest.mark.parametrize(("form", "inputs", "output"), CALLS)
def test_every_way_to_call_gives_what_the_tensors_give(form: str, inputs: Any, output: Any) -> None:
    results = []
    for model, x, options in ((two("tensor"), (A, B), {}), (two(form), inputs, {"output": output})):
        torch.manual_seed(2)
        elbo = bayes.ELBO(model, "categorical", num_data=60, **options)
        loss = elbo(x, LABELS).loss
        loss.backward()
        gradients = [p.grad for p in model.parameters()]
        prediction = bayes.predict(model, x, 9, likelihood="categorical", seed=3, chunk=13, **options)
        generator = torch.Generator().manual_seed(4)
        settings: dict[str, Any] = {"generator": generator, **options}
        measured = variance.measure(
            model, cross_entropy, (x, LABELS), batch_sizes=[4], draws=6, repeats=2, sub_batch=3, **settings
        )
        terms = variance.decompose(model, cross_entropy, (x, LABELS), pairs=3, batch_size=2, examples=40, **settings)
        records = [record.variance for record in measured] + [term.both.value for term in terms]
        results.append([loss, *gradients, prediction.mean, prediction.epistemic, torch.tensor(records)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def test_a_function_gets_all_that_the_model_returns_unless_told() -> None:
    losses = []
    for output, likelihood in (
        (None, lambda returned, y: -cross_entropy(returned["scores"], y, reduction="none")),
        ("scores", lambda scores, y: -cross_entropy(scores, y, reduction="none")),
    ):
        torch.manual_seed(1)
        losses.append(bayes.ELBO(two("dict"), likelihood, num_data=6, output=output)({"a": A, "b": B}, LABELS).loss)
    assert torch.equal(*losses)
    data = ({"a": A, "b": B}, LABELS)
    whole = variance.measure(
        two("dict"), lambda returned, y: cross_entropy(returned["scores"], y), data, batch_sizes=[2], draws=2, repeats=2
    )
    assert all(record.variance > 0 for record in whole if not record.parameter.endswith("rho"))


@pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
def test_predict_of_a_llama_is_a_loop_over_samples_and_examples(joint: bool) -> None:
    """Each sample of each example, alone, through the plain model under the weights that it saw."""
    plain, inputs, samples, group = classifier(), tokens(), 6, 3
    model, count = flipout.perturb(copy.deepcopy(plain), flipout.MultiplicativeGaussian(0.3)), 4
    prediction = bayes.predict(model, inputs, samples, group=group, joint=joint, keep=True, seed=5, output="logits")
    folded = {name: value.repeat(samples, 1) for name, value in inputs.items()}
    draw: dict[str, Any] = {"rows": count, "group": group} if joint else {"group": group * count}
    with flipout.hold(model, seed=5, **draw):
        model(**folded)
        weights = weights_by_example(model)
    assert prediction.samples is not None
    for sample in range(samples):
        for n in range(count):
            alone = {name: value[n : n + 1] for name, value in inputs.items()}
            of_row = weights[sample if joint else sample * count + n]
            expected = functional_call(plain, of_row, (), alone).logits[0]
            torch.testing.assert_close(prediction.samples[sample, n], expected, rtol=1e-10, atol=1e-12)
    alone = bayes.predict(model, inputs, samples, group=group, joint=joint, keep=True, seed=5)  # the only tensor
    torch.testing.assert_close(alone.mean, prediction.mean)


def test_a_members_batch_may_be_keywords_and_its_model_output_keeps_its_fields() -> None:
    model, inputs = classifier(), tokens()
    expanded = {name: value.expand(3, *value.shape) for name, value in inputs.items()}
    model.model.embed_tokens.requires_grad_(False)

    def fitness(population: Any) -> Tensor:
        whole = population(**expanded, batched=True, use_cache=False)
        logits = population(**expanded, batched=True, output="logits")
        assert torch.equal(whole.logits, logits)
        assert logits.shape == (3, 4, 3)
        single = {name: value[:3] for name, value in inputs.items()}
        with population.formed() as members:
            torch.testing.assert_close(members(**single, output=0), population(**single, output="logits"))
        return logits.mean((1, 2))

    strategy = EvolutionStrategy(
        model, fitness, population=3, group=3, std=0.05, optimizer=lambda p: torch.optim.SGD(p, 0.1)
    )
    strategy.step()
    with pytest.raises(errors.InvalidInput, match=r"population\(…, output='scores'\).*has no 'scores'.*'logits'"):
        strategy.ask()[0](**expanded, batched=True, output="scores")


def test_the_number_of_examples_may_be_a_tensor() -> None:
    elbo = bayes.ELBO(two("dict"), "categorical", num_data=60, output="scores")
    losses = []
    for batch in (12, torch.tensor(12), torch.tensor(12.0)):
        torch.manual_seed(1)
        losses.append(elbo({"a": A, "b": B}, LABELS, batch=batch).loss)
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])
    for batch in (torch.tensor(5), torch.tensor(-1.0), torch.tensor([12]), torch.tensor(True), torch.tensor(torch.nan)):
        with pytest.raises(errors.InvalidArgument, match="expected the number of examples of the whole step"):
            elbo({"a": A, "b": B}, LABELS, batch=batch)


def test_one_tensor_is_found_and_several_are_not_guessed() -> None:
    x = torch.zeros(2)
    assert select_tensor({"x": x, "cache": object(), "state": None}, None, "predict") is x
    assert select({"x": x}, None, "measure") == {"x": x}
    for returned, selector, message in (
        (Pair(x, x), None, r"Pair\(scores: \(2,\), features: \(2,\)\); expected one tensor. .*predict\(…, output=0\)"),
        ((x, (x, x)), None, r"tuple\(0: \(2,\), 1: tuple\); expected one tensor"),
        ({"loss": x, "logits": x}, None, "output='logits'"),
        ({"loss": None}, None, "there is no tensor in it"),
        ({"x": x}, "y", r"dict\(x: \(2,\)\), which has no 'y'. Choose one of them, such as output='x'"),
        ((x,), 3, "which has no 3"),
        ((x, None), 1, "this is NoneType in what the model returned"),
        (x, 0, r"a tensor of shape \(2,\), which has no 0. Leave output= out"),
    ):
        with pytest.raises(errors.InvalidInput, match=message):
            select_tensor(returned, selector, "predict")
    for call in (
        lambda: bayes.ELBO(two("dict"), "categorical", num_data=6, output=True),
        lambda: variance.measure(two("dict"), cross_entropy, ((A, B), LABELS), batch_sizes=[2], output=2.0),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(errors.InvalidArgument, match="expected the name of a field"):
            call()


def test_a_packed_sequence_is_one_argument() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 2), torch.randn(1, 2)])
    assert model_call(packed).args == (packed,)
    model = flipout.perturb(nn.LSTM(2, 3, batch_first=True), flipout.Gaussian(0.1))
    with pytest.raises(errors.InvalidInput, match=r"argument 0 is of type .*PackedSequence;.*pad_packed_sequence"):
        bayes.predict(model, packed)
