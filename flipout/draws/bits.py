"""Seed and place in, 64 random bits out.

    word(seed, name, place) = mix(mix(seed) + name + place · γ)

`mix` is the finaliser of SplitMix64 (Steele et al., 2014) and γ its step, so the places of one name are a SplitMix64
stream, and every name has a stream of its own. Any word can be made alone, on any device, in any order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, is_gradtrackingtensor

LOW = 0xFFFFFFFF
GAMMA = 0x9E3779B97F4A7C15 - 2**64
NAMES = 0x6A09E667F3BCC909  # sets the streams of Parameters apart
MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_STAGES = ((30, MIX[0]), (27, MIX[1]), (31, 1))
CACHED = 2**15  # words at a time on a CPU


def wrap(number: int) -> int:
    """The 64-bit two's complement of an integer."""
    return (number + 2**63) % 2**64 - 2**63


def stream_name(key: int, field: int) -> int:
    """The name of a stream of the Parameter with this 61-bit key; `field` says what it is for (below 8)."""
    return wrap((key << 3 | field) * NAMES)


def named(z: Tensor, key: int, field: int) -> Tensor:
    """z + name. While compiling, keys may be symbols, and their products indices, which must not overflow: tensors
    wrap around."""
    if torch.compiler.is_compiling():
        return z + ((z & 0 | key) << 3 | field) * NAMES
    return z + stream_name(key, field)


def mix_number(z: int) -> int:
    """`mix` of one number."""
    for shift, multiplier in _STAGES:
        z &= 2**64 - 1
        z = (z ^ z >> shift) * multiplier
    return wrap(z)


def on_cpu(tensor: Tensor) -> bool:
    """Whether numpy computes: for integers and small arrays it takes a fraction of torch's time on a CPU.

    Inside torch.func too, where what does not depend on a transform is a constant.
    """
    if type(tensor) is not Tensor or tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not (torch._C._are_functorch_transforms_active() and is_functorch_wrapped_tensor(tensor))


def undifferentiated(number: Tensor) -> Tensor:
    """A whole number without the wrappers of torch.func's derivatives, which it has no part in."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return number
    while is_gradtrackingtensor(number):
        number = get_unwrapped(number)
    return number


def mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser of int64 words, in place."""
    if on_cpu(z) and z.is_contiguous():
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
    """`mix` of numpy's unsigned integers, in place."""
    for shift, multiplier in _UNSIGNED:
        z ^= z >> shift
        z *= multiplier
    z ^= z >> _LAST
    return z


def transformed() -> bool:
    """Inside torch.compile, torch.func or forward-mode differentiation, which see through plain tensor code and own
    what is made there."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def recorded() -> bool:
    """Inside of a trace or a capture, which own what is made there."""
    return transformed() or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


_CONSTANTS: dict[tuple, Tensor] = {}


def constant(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """make(*args), made once; but anew inside of a trace or a capture."""
    if recorded():
        return make(*args)
    made = _CONSTANTS.get((make, *args))
    if made is None:
        with torch.inference_mode(False):
            made = make(*args)
        if type(made) is Tensor:
            _CONSTANTS[make, *args] = made
    return made


def places(count: int, first: int = 0) -> np.ndarray:
    """(first + i) · γ, of numpy."""
    return np.arange(first, first + count, dtype=np.uint64) * np.uint64(GAMMA % 2**64)


def steps(count: int, device: torch.device, first: int = 0) -> Tensor:
    """(first + i) · γ. Without the `| 0`, inductor would fold the product into an index, which must not overflow."""
    return (torch.arange(first, first + count, device=device) | 0).mul_(GAMMA)
