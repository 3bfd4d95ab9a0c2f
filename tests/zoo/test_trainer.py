"""The recipe on transformers' Trainer: the gradients of the parts add up to the gradient of the whole batch."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import flipout
from flipout import bayes

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "trainer.md"
EXAMPLES = 22  # two parts of 8 and a short one of 6


def trainer_of_the_page() -> Any:
    """Return the class that the page defines, without the training that follows."""
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    kept = (ast.Import, ast.ImportFrom, ast.ClassDef)
    nodes: list[ast.stmt] = [node for node in ast.parse(found[1]).body if isinstance(node, kept)]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(nodes, []), str(PAGE), "exec"), names)
    return names["BayesTrainer"]


def classifier() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = transformers.BertForSequenceClassification(config)
    return flipout.perturb(model, flipout.MeanField(std=0.1, prior=bayes.Normal(0.0, 1.0)))


class Recorder(transformers.TrainerCallback):
    """Keeps the gradients of a step."""

    def __init__(self, model: Any) -> None:
        self.model, self.gradients = model, dict[str, Tensor]()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.gradients = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("per_part", [EXAMPLES, 8])
def test_the_parts_of_a_step_add_up(tmp_path: Path, per_part: int) -> None:
    ids, labels = torch.randint(3, 30, (EXAMPLES, 6)), torch.randint(2, (EXAMPLES,))
    model = classifier()
    with flipout.hold(model, seed=1):
        elbo = bayes.ELBO(model, "categorical", num_data=1000, output="logits")
        elbo({"input_ids": ids}, labels).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    class InOrder(trainer_of_the_page()):
        """Each part is the next part of one held draw, and the data come in order."""

        seen = 0

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            first, self.seen = self.seen, self.seen + len(inputs["labels"])
            with flipout.hold(model, seed=1, first=first):
                return super().compute_loss(model, inputs, *args, **kwargs)

        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = transformers.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=per_part,
        gradient_accumulation_steps=4,
        max_steps=1,
        max_grad_norm=0.0,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
    )
    recorder = Recorder(model)
    dataset = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    trainer = InOrder(model, num_data=1000, args=arguments, train_dataset=dataset, callbacks=[recorder])
    trainer.train()
    assert trainer.seen == EXAMPLES
    assert recorder.gradients.keys() == expected.keys()
    assert any(name.endswith("_rho") for name in expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(recorder.gradients[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_the_kl_counts_once_where_the_obvious_loss_counts_it_for_each_part() -> None:
    """The Trainer passes the size of the whole step as a tensor of shape ()."""
    model, num_data = classifier(), 1000
    divergence = float(bayes.kl(model).detach())
    ids, labels = torch.randint(3, 30, (EXAMPLES, 6)), torch.randint(2, (EXAMPLES,))
    elbo, counted, obvious = bayes.ELBO(model, "categorical", num_data=num_data, output="logits"), 0.0, 0.0
    for part in torch.arange(EXAMPLES).split(8):
        terms = elbo({"input_ids": ids[part]}, labels[part], batch=torch.tensor(EXAMPLES))
        counted += float(terms.loss.detach() + terms.log_likelihood.detach() / EXAMPLES)
        obvious += divergence / num_data
    assert counted == pytest.approx(divergence / num_data, rel=1e-4)
    assert obvious == pytest.approx(3 * counted, rel=1e-4)
