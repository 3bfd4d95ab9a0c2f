"""Forward passes of populations by other libraries, if they are installed. Each call draws a new population.

A member is an MLP with its own weights. Inputs are (members, samples, features), expanded if all members see one batch.
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
    # jax reads this when it starts: one thread, as torch has here.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax  # pyright: ignore[reportMissingImports]
    from evosax.algorithms import Open_ES  # pyright: ignore[reportMissingImports]
    from evosax.problems.networks import MLP, identity_output_fn  # pyright: ignore[reportMissingImports]

    sizes = [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]
    network = MLP(layer_sizes=sizes, activation=jax.nn.relu, output_fn=identity_output_fn)
    shared = x.stride(0) == 0
    inputs = jax.numpy.asarray((x[0] if shared else x).numpy())
    key = jax.random.key(0)
    mean = network.init(key, inputs[0])
    search = Open_ES(members, mean, use_antithetic_sampling=False, std_schedule=lambda _: STD)
    settings = search.default_params
    state = search.init(key, mean, settings)

    @jax.jit
    def forward(key, inputs):
        population, _ = search.ask(key, state, settings)
        return jax.vmap(network.apply, (0, None if shared else 0))(population, inputs)

    def run() -> None:
        nonlocal key
        key, generation_key = jax.random.split(key)
        forward(generation_key, inputs).block_until_ready()

    return run


def evox(model: nn.Module, members: int, x: Tensor) -> Forward:
    """Its low-rank form with rank 1, by the functions of its VirtualLoRAProblem, which itself takes one batch only."""
    from evox.triton_kernels import (  # pyright: ignore[reportMissingImports]
        compute_counter_offsets,
        generate_lora_factors,
        lora_delta_output,
    )

    offsets = compute_counter_offsets([tuple(parameter.shape) for parameter in model.parameters()], 1)
    inputs = x.contiguous()  # as EvoX itself does

    def run() -> Tensor:
        seeds, h, places = torch.randint(2**31, (members,)), inputs, iter(offsets)
        for layer in model.children():
            if not isinstance(layer, nn.Linear):
                h = layer(h)
                continue
            a, b = generate_lora_factors(seeds, tuple(layer.weight.shape), 1, next(places))
            bias_noise = generate_lora_factors(seeds, tuple(layer.bias.shape), 1, next(places))
            h = h @ layer.weight.t() + layer.bias + lora_delta_output(h, a, b, STD) + STD * bias_noise.unsqueeze(1)
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
        population = search.get_stacked_params()
        search.epoch += 1
        return forward(x[0] if x.stride(0) == 0 else x, *(population[name] for name in names))

    return run


RIVALS = {"EvoTorch": evotorch, "evosax": evosax, "EvoX low-rank": evox, "torcheggroll": torcheggroll}
