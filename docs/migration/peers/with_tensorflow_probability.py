"""TensorFlow Probability's DenseFlipout: what its layer does with the KL, with tokens, and out of training.

Run with tensorflow-cpu 2.21.0, tf_keras 2.21.0, tensorflow-probability 0.25.0: its output is in the .txt beside it.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

tf.keras.utils.set_random_seed(0)
OUTPUTS, INPUTS, TOKENS, DRAWS, NUM_DATA = 3, 4, 8, 4000, 1000

layer = tfp.layers.DenseFlipout(OUTPUTS)
x = tf.ones((1, INPUTS))
layer(x)
q = layer.kernel_posterior.distribution
mean, std = q.loc.numpy(), q.scale.numpy()
by_hand = np.sum(-np.log(std) + (std**2 + mean**2) / 2 - 0.5)
print(f"KL in layer.losses {float(sum(layer.losses)):.4f}; summed by hand {by_hand:.4f}")

scaled = tfp.layers.DenseFlipout(
    OUTPUTS, kernel_divergence_fn=lambda q, p, _: tfp.distributions.kl_divergence(q, p) / NUM_DATA
)
scaled(x)
print(f"divided by num_data, as its documentation asks: {float(sum(scaled.losses)):.6f}")

tokens = tf.ones((1, TOKENS, INPUTS))
seen = np.stack([layer(tokens).numpy()[0] for _ in range(DRAWS)])  # (draws, tokens, outputs)
token_variance = (std**2).sum(0)
print(f"variance of one token's output / Σ σ² x²: {(seen[:, 0].var(0) / token_variance).mean():.3f}")
print(f"variance of the mean over {TOKENS} tokens / Σ σ² x²: {(seen.mean(1).var(0) / token_variance).mean():.3f}")

again = [layer(x, training=False).numpy() for _ in range(2)]
print(f"two calls with training=False are equal: {bool(np.array_equal(*again))}")
