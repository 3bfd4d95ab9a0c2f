"""Tables 2 and 3: regularised language models of the Penn Treebank."""
