"""Every text model of transformers' `AutoModelForCausalLM` that can be built small, and what became of it.

python -m tests.zoo.sweep tests/zoo/causal.csv
"""

import contextlib
import copy
import csv
import inspect
import io
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

import flipout
from flipout import errors

from .oracle import Family, compare
from .sizes import MORE, SIZES, TEXT_PART
from .text import tokens

_MOST = 3_000_000  # numbers of a model that counts as tiny


def config_of(config_type: type[Any], name: str) -> Any:
    """Return a tiny configuration of the model of that name."""
    allowed = inspect.signature(config_type.__init__).parameters
    sizes = {size: value for size, value in SIZES.items() if size in allowed}
    if not sizes:
        sizes = {size: value for size, value in SIZES.items() if hasattr(config_type(), size)}
    return config_type(**{**sizes, **MORE.get(name, {})})


def built() -> Iterator[tuple[str, nn.Module | str]]:
    """Yield the name of each model with the model, or with why it could not be built small."""
    for config_type, model_type in MODEL_FOR_CAUSAL_LM_MAPPING.items():
        kinds: tuple[Any, ...] = model_type if isinstance(model_type, tuple) else (model_type,)
        name = kinds[0].__name__
        try:
            config: Any = config_of(type(config_type().get_text_config()) if name in TEXT_PART else config_type, name)
            with torch.device("meta"):
                count = sum(p.numel() for p in kinds[0](config).parameters())
            if count > _MOST:
                yield name, f"not tiny: {count} numbers"
                continue
            torch.manual_seed(0)
            built = kinds[0](config)
            built.config._experts_implementation = "eager"
            copy.deepcopy(built).double().eval()(**tokens(2))
            yield name, built
        except Exception as error:
            yield (
                name,
                f"not built: {type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}",
            )


def outcome(make: nn.Module, **options: Any) -> tuple[str, str]:
    """Return what became of a model that was converted with these options, and more about it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            difference = compare(Family(lambda: copy.deepcopy(make), tokens, options=options), gradients=False)
        except errors.FlipoutError as error:
            said = re.sub(r"/\S*/site-packages/", "", str(error))
            return "refused", f"{type(error).__name__}: {said[:160]}"
        except AssertionError as error:
            return "wrong", f"counts other examples: {error}"
        except Exception as error:
            return "failed", f"{type(error).__name__}: {str(error)[:160]}"
    left = "; some left out, with a warning" if any(w.category is errors.LeftPlain for w in caught) else ""
    # Norms that compute in fp32 round each example by itself.
    return ("right" if difference < 1e-6 else "wrong"), f"difference {difference:.0e}{left}"


def main(path: Path) -> None:
    """Write the table."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        versions = f"transformers {transformers.__version__}", f"flipout {flipout.__version__}"
        table.writerow(["model", "outcome", "more", "outcome with example_inputs", "more with them", *versions])
        for name, model in built():
            with contextlib.redirect_stderr(io.StringIO()):
                if isinstance(model, str):
                    row = ("not built", model) * 2
                else:
                    row = (*outcome(model), *outcome(model, example_inputs=tokens(3)))
            table.writerow([name, *(" ".join(cell.split()) for cell in row)])
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
