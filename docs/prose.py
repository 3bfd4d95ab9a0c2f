"""Print a fixed random sample of the library's prose, for a review of how well it reads: `python docs/prose.py [SEED]`.

Use a new seed for each review: the passages of an old one were rewritten already. Restate each passage before you open
the code around it, and rewrite those that you misread. A comment of several lines counts as several passages. Adding or
removing passages changes the sample; rewriting them does not.
"""

import ast
import io
import random
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SEED, SAMPLES = 20261118, 60


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        is_documentable = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_documentable and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def string_literals(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the strings below `node`; an f-string is one string, with its fields as written."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, ast.unparse(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from string_literals(child)


def error_messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            yield from string_literals(node)


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and len(token.string.lstrip("#").split()) >= 4:
            yield token.start[0], token.string


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else SEED
    root, passages = Path(__file__).parents[1], []
    for path in sorted((root / "flipout").rglob("*.py")):
        name, source = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        for line, text in (*docstrings(tree), *error_messages(tree), *comments(source)):
            passages.append((name, line, text))
    for number, (name, line, text) in enumerate(random.Random(seed).sample(passages, SAMPLES), 1):
        print(f"{number}. {name}:{line}\n{text}\n")


if __name__ == "__main__":
    main()
