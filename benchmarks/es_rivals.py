"""Other libraries' forward passes of perturbed networks, for those that are installed: each draws its population anew.

A member is an MLP with its own weights; inputs are (members, samples, features), expanded where all see one batch.
"""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

Forward = Callable[[], object]
STD = 0.02


def evotorch(model: nn.Module, members: int, x: Tensor) -> Forward:
    from evotorch.distributions import SeparableGaussian  # pyright: ignore[reportMissingImports]
    from evotorch.neuroevolution.net import make_functional_module  # pyright: ignore[reportMissingImports]

    mean = nn.utils.parameters_to_vector(model.parameters()).detach()
    search = SeparableGaussian({"mu": mean, "sigma": torch.full_like(mean, STD)})
    forward = vmap(make_functional_module(model, disable_autograd_tracking=True))
    return lambda: forward(search.sample(members), x)


def evosax(model: nn.Module, members: int, x: Tensor) -> Forward:
    # Read when jax starts: one thread, as torch has.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax  # pyright: ignore[reportMissingImports]
    from evosax.algorithms import Open_ES  # pyright: ignore[reportMissingImports]
    from evosax.problems.networks import MLP, identity_output_fn  # pyright: ignore[reportMissingImports]

    sizes = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    network = MLP(layer_sizes=sizes, activation=jax.nn.relu, output_fn=identity_output_fn)
    shared = x.stride(0) == 0
    given = jax.numpy.asarray((x[0] if shared else x).numpy())
    key = jax.random.key(0)
    mean = network.init(key, given[0])
    search = Open_ES(members, mean, use_antithetic_sampling=False, std_schedule=lambda _: STD)
    settings = search.default_params
    state = search.init(key, mean, settings)

    @jax.jit
    def forward(key, given):
        population, _ = search.ask(key, state, settings)
        return jax.vmap(network.apply, (0, None if shared else 0))(population, given)

    def run() -> None:
        nonlocal key
        key, own = jax.random.split(key)
        forward(own, given).block_until_ready()

    return run


def evox(model: nn.Module, members: int, x: Tensor) -> Forward:
    """Its low-rank form, of rank 1: what its VirtualLoRAProblem computes, which has no inputs of a member's own."""
    from evox.triton_kernels import (  # pyright: ignore[reportMissingImports]
        compute_counter_offsets,
        generate_lora_factors,
        lora_delta_output,
    )

    offsets = compute_counter_offsets([tuple(parameter.shape) for parameter in model.parameters()], 1)
    inputs = x.contiguous()  # as it does itself

    def run() -> Tensor:
        seeds, h, places = torch.randint(2**31, (members,)), inputs, iter(offsets)
        for layer in model.children():
            if not isinstance(layer, nn.Linear):
                h = layer(h)
                continue
            a, b = generate_lora_factors(seeds, tuple(layer.weight.shape), 1, next(places))
            own = generate_lora_factors(seeds, tuple(layer.bias.shape), 1, next(places))
            h = h @ layer.weight.t() + layer.bias + lora_delta_output(h, a, b, STD) + STD * own.unsqueeze(1)
        return h

    return run


def torcheggroll(model: nn.Module, members: int, x: Tensor) -> Forward:
    from torcheggroll import TorchEggrollES  # pyright: ignore[reportMissingImports]

    search = TorchEggrollES(model, pop_size=members, sigma=STD, rank=1, antithetic=False)
    names = search.param_names

    def member(x: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(model, dict(zip(names, parameters, strict=True)), (x,))

    forward = vmap(member, (None if x.stride(0) == 0 else 0, *[0] * len(names)))

    def run() -> Tensor:
        search.prepare_population()
        made = search.get_stacked_params()
        search.epoch += 1
        return forward(x[0] if x.stride(0) == 0 else x, *(made[name] for name in names))

    return run


RIVALS = {"EvoTorch": evotorch, "evosax": evosax, "EvoX low-rank": evox, "torcheggroll": torcheggroll}
