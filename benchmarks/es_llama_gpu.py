"""A population of a Llama in bf16 on one GPU against inference: forward passes, and one token of decoding, captured.

The Llama has random weights and no head: 12 decoder layers of width 2048, whose products a population perturbs. Shares
are the time of inference over the time of the population, so 1 is the speed of inference. Each call takes a fresh draw.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import flipout

from .gpu import measure_captured, timed
from .record import Row, interleaved, rows

STD, DTYPE = 0.01, "bfloat16"
PLAIN = "plain compiled"  # what the shares of forward passes are of
SECONDS = 130  # after which parts that take a minute are left out


class Setting(NamedTuple):
    device: str = "cuda"
    backend: str = "inductor"
    width: int = 2048
    inner: int = 8192
    heads: int = 16
    layers: int = 12
    few_layers: int = 2  # under noise whose graph takes long to compile
    members: int = 64
    few_members: int = 8  # whose weights are formed
    tokens: int = 512
    decoded: tuple[int, ...] = (256, 1024, 4096)  # members with one row each
    pairs: int = 2  # of layers to the inner width and back; all weights together exceed the cache of a GPU
    seconds: float = 4
    least: int = 15


def run() -> Iterator[Row]:
    yield from measured(Setting())


def measured(setting: Setting) -> Iterator[Row]:
    """Measure decoding, forward passes, and forward passes of fewer layers or members."""
    begin = time.perf_counter()
    for members in setting.decoded:
        yield from _decoding(setting, members)
    yield from _forward(setting, setting.layers, setting.members, ("plain", "rank_one", "flipout"), ("rank_one",))
    yield from _forward(setting, setting.layers, setting.few_members, ("plain", "independent"), ())
    if time.perf_counter() - begin > SECONDS:
        print("low_rank(1) compiled is left out: the time is up")
        return
    yield from _forward(setting, setting.few_layers, setting.members, (), ("rank_one", "low_rank"))


@torch.no_grad()
def _forward(
    setting: Setting, layers: int, members: int, eager: tuple[str, ...], compiled: tuple[str, ...]
) -> Iterator[Row]:
    ids = torch.randint(1000, (members, setting.tokens), device=setting.device)
    first: dict[str, list[float]] = {}
    runs: dict[str, Callable[[], object]] = {}
    for scheme in eager:
        model = _noisy(llama(setting, layers), scheme)
        runs[scheme] = lambda model=model: model(ids)
    if compiled:
        for scheme in ("plain", *compiled):
            torch.compiler.reset()
            model = _compiled(setting, _noisy(llama(setting, layers), scheme))
            runs[f"{scheme} compiled"] = lambda model=model: model(ids)
            begin = time.perf_counter()
            _to_the_end(setting, runs[f"{scheme} compiled"])()
            first[f"{scheme} compiled"] = [1e3 * (time.perf_counter() - begin)]
    case = f"es Llama {layers} × {setting.width} without head, {members} × {setting.tokens}"
    found = interleaved(
        {name: _to_the_end(setting, call) for name, call in runs.items()}, seconds=setting.seconds, least=setting.least
    )
    yield from _compared(case, found, PLAIN if compiled else "plain")
    if first:
        yield from rows(f"{case}, first call", first, {}, dtype=DTYPE)


@torch.no_grad()
def _decoding(setting: Setting, members: int) -> Iterator[Row]:
    """Measure one row for each member through linear layers, as captured graphs."""
    x = torch.randn(members, setting.width, device=setting.device, dtype=torch.bfloat16)
    runs: dict[str, Callable[[], object]] = {}
    for scheme in ("plain", "rank_one"):
        model = _noisy(_stack(setting), scheme)
        runs[scheme] = lambda model=model: model(x)
    torch.compiler.reset()
    fused = _compiled(setting, _noisy(_stack(setting), "rank_one"))
    fused(x)  # compiles, which a capture cannot
    runs["rank_one compiled"] = lambda: fused(x)
    if setting.device == "cuda":
        found = measure_captured(runs, seconds=setting.seconds / 2)
    else:
        found = interleaved(runs, seconds=setting.seconds, least=setting.least)
    case = f"es decode {setting.pairs} × ({setting.width} ↔ {setting.inner}), {members} × 1 captured"
    yield from _compared(case, found, "plain")


def _compared(case: str, found: Mapping[str, list[float]], plain: str) -> Iterator[Row]:
    others = [name for name in found if name != plain]
    yield from rows(case, dict(found), dict.fromkeys(others, plain), dtype=DTYPE)
    shares = {name: [a / b for a, b in zip(found[plain], found[name], strict=True)] for name in others}
    yield from rows(f"{case}, share of {plain}", shares, {}, what="ratio", dtype=DTYPE)


def llama(setting: Setting, layers: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaModel

    with torch.device(setting.device):
        model: Any = LlamaModel(
            LlamaConfig(
                vocab_size=32000,
                hidden_size=setting.width,
                intermediate_size=setting.inner,
                num_hidden_layers=layers,
                num_attention_heads=setting.heads,
                num_key_value_heads=setting.heads,
                max_position_embeddings=max(setting.tokens, 512),
                use_cache=False,
            )
        )
    return model.to(torch.bfloat16)


def _stack(setting: Setting) -> nn.Sequential:
    width, inner = setting.width, setting.inner
    sizes = [(width, inner), (inner, width)] * setting.pairs
    layers = [nn.Linear(*size, bias=False, device=setting.device, dtype=torch.bfloat16) for size in sizes]
    return nn.Sequential(*layers)


def _noisy(model: Any, scheme: Any) -> nn.Module:
    """Give a model noise of a scheme. In training mode, each call takes a fresh draw."""
    if scheme == "plain":
        return model.eval()
    noise = flipout.Rademacher(STD) if scheme == "rank_one" else flipout.Gaussian(STD)
    return flipout.perturb(model.train(), noise, scheme=scheme)


def _compiled(setting: Setting, model: nn.Module) -> Callable[[Tensor], object]:
    return torch.compile(model, backend=setting.backend, dynamic=False)  # pyright: ignore[reportReturnType]


def _to_the_end(setting: Setting, call: Callable[[], object]) -> Callable[[], object]:
    return timed(call) if setting.device == "cuda" else call
