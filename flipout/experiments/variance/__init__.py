"""Figure 1 and Theorem 2: the variance of gradients."""
