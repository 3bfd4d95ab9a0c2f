"""Counter-based random bits: a pure function of seed, stream name and place.

    word(seed, name, place) = mix(mix(seed) + name + place · γ)

`mix` is the finaliser of SplitMix64 (Steele et al., 2014) and γ its increment. The places of one name therefore form a
SplitMix64 stream, and each name has its own stream. Any word can be computed alone, on any device, in any order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, is_gradtrackingtensor

LOW = 0xFFFFFFFF
GAMMA = 0x9E3779B97F4A7C15 - 2**64
NAMES = 0x6A09E667F3BCC909  # separates the streams of different Parameters
MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_STAGES = ((30, MIX[0]), (27, MIX[1]), (31, 1))
CACHED = 2**15  # words that a CPU computes at a time, so that they stay in its cache


def wrap(number: int) -> int:
    """Return an integer as a signed 64-bit number, in two's complement."""
    return (number + 2**63) % 2**64 - 2**63


def stream_name(key: int, field: int) -> int:
    """Return the name of a stream of the Parameter with this 61-bit key. `field` (below 8) is the stream's purpose."""
    return wrap((key << 3 | field) * NAMES)


def add_stream_name(z: Tensor, key: int, field: int) -> Tensor:
    """Return z + name.

    In a compiled graph the key may be a symbol. Inductor would treat its product as an index, which must not overflow,
    so the name is computed with tensors, which wrap around.
    """
    if torch.compiler.is_compiling():
        return z + ((z & 0 | key) << 3 | field) * NAMES
    return z + stream_name(key, field)


def mix_number(z: int) -> int:
    """Return `mix` of one Python integer."""
    for shift, multiplier in _STAGES:
        z &= 2**64 - 1
        z = (z ^ z >> shift) * multiplier
    return wrap(z)


def uses_numpy(tensor: Tensor) -> bool:
    """Return True if numpy should compute with this tensor, since it is faster than torch for small integer arrays.

    Inside torch.func too, a tensor that does not depend on the transform is a constant, and numpy may compute with it.
    """
    if type(tensor) is not Tensor or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not (torch._C._are_functorch_transforms_active() and is_functorch_wrapped_tensor(tensor))


def undifferentiated(number: Tensor) -> Tensor:
    """Return an integer tensor without torch.func's gradient wrappers: integers have no derivative."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return number
    while is_gradtrackingtensor(number):
        number = get_unwrapped(number)
    return number


def mix(z: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser to int64 words, in place."""
    if uses_numpy(z) and z.is_contiguous():
        mix_array(z.numpy().view(np.uint64))
        return z
    for shift, multiplier in _STAGES:
        z ^= (z >> shift) & (2 ** (64 - shift) - 1)  # the mask makes an arithmetic shift logical
        if multiplier != 1:
            z *= multiplier
    return z


_UNSIGNED = tuple((np.uint64(shift), np.uint64(multiplier % 2**64)) for shift, multiplier in _STAGES[:2])
_LAST = np.uint64(_STAGES[2][0])


def mix_array(z: np.ndarray) -> np.ndarray:
    """Apply `mix` to numpy's unsigned integers, in place."""
    for shift, multiplier in _UNSIGNED:
        z ^= z >> shift
        z *= multiplier
    z ^= z >> _LAST
    return z


def is_transformed() -> bool:
    """Return True inside torch.compile, torch.func or forward-mode differentiation.

    These trace plain tensor code, and a tensor made inside must not be kept for later.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_recorded() -> bool:
    """Return True inside a trace or a CUDA graph capture: a tensor made there must not be kept for later."""
    return is_transformed() or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


_CONSTANTS: dict[tuple, Tensor] = {}
_MOST_CONSTANTS = 4096  # a standard deviation that changes at every step is another constant each time


def constant(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return `make(*args)`, computed once and kept.

    Inside a trace it is computed anew. A capture uses what was kept before, and keeps nothing that it made itself. None
    is ever dropped, since a captured graph may read it, so once there are many, new ones are not kept.
    """
    if is_transformed():
        return make(*args)
    tensor = _CONSTANTS.get((make, *args))
    if tensor is None and is_recorded():
        return make(*args)
    if tensor is None:
        with torch.inference_mode(False):
            tensor = make(*args)
        if type(tensor) is Tensor and len(_CONSTANTS) < _MOST_CONSTANTS:
            _CONSTANTS[make, *args] = tensor
    return tensor


def places(count: int, first: int = 0) -> np.ndarray:
    """Return (first + i) · γ for i < count, as a numpy array."""
    return np.arange(first, first + count, dtype=np.uint64) * np.uint64(GAMMA % 2**64)


def steps(count: int, device: torch.device, first: int = 0) -> Tensor:
    """Return (first + i) · γ for i < count, as a tensor."""
    # Without the `| 0`, inductor would fold the product into an index, which must not overflow.
    return (torch.arange(first, first + count, device=device) | 0).mul_(GAMMA)
