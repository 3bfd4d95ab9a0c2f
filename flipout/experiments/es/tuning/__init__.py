"""Which settings of evolution strategies to compare with backpropagation: chosen on held-out training examples."""
