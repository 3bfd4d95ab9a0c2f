"""Edward2's DenseFlipout: its KL, and what its output signs are.

Run with tensorflow-cpu 2.21.0, tf_keras 2.21.0, edward2 0.0.2; what it printed is in the .txt beside it.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import edward2 as ed
import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(0)
OUTPUTS, INPUTS, DRAWS = 3, 4, 4000

layer = ed.layers.DenseFlipout(OUTPUTS, kernel_regularizer=ed.regularizers.NormalKLDivergence(stddev=1.0))
x = tf.ones((1, INPUTS))
layer(x)
q = layer.kernel.distribution
mean, std = q.mean().numpy(), q.stddev().numpy()
by_hand = np.sum(-np.log(std) + (std**2 + mean**2) / 2 - 0.5)
print(f"KL in layer.losses {float(sum(layer.losses)):.4f}; summed by hand {by_hand:.4f}")

seen = np.stack([layer(x).numpy()[0] for _ in range(DRAWS)])
print(f"variance of an output / Σ σ² x²: {(seen.var(0) / (std**2).sum(0)).mean():.3f} (7/3 = {7 / 3:.3f})")

single = ed.layers.DenseFlipout(1, use_bias=False)  # one weight: |y − W̄| is |ΔŴ| of the call, if signs are ±1
y = single(tf.ones((1000, 1))).numpy()
sizes = np.abs(y - single.kernel.distribution.mean().numpy()).round(7)
print(f"distinct |y − W̄ x| among 1000 examples of one call: {len(np.unique(sizes))}")
