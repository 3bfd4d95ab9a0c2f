"""Networks and training loops that several families of experiments share."""
