"""Statistics and checks that several families of experiments share."""
