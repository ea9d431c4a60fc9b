"""Attention as one HTML page that needs nothing besides itself."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from transduce.model.heads import KINDS, Head
from transduce.text.treebank import Tree
from transduce.text.trees_as_text import linearize
from transduce.viewing.attention import Attention

_SCRIPTS = ("data", "lines", "matrices", "table", "tree", "controls")


def attention_page(
    attention: Attention,
    *,
    title: str,
    about: Sequence[tuple[str, str]],
    start: Sequence[Head],
    masked: Sequence[Head] = (),
    tree: Tree | None = None,
) -> str:
    """The page: lines, matrices and tables of every head.

    `about` stands at its top, terms and texts. It opens on the heads of `start`, which are of one
    layer. A tree stands beside the attention; as far as `target` is its symbols, one a token, they
    belong together. Whatever the texts hold, they stay text: the page has no place where they
    could be markup or script, and its own policy forbids it to load or run anything else.
    """
    first = start[0]
    counts = {kind: attention.weights[kind].shape[:2] for kind in KINDS}
    data = {
        "about": about,
        "tokens": {
            "source": attention.source,
            "read": attention.read,
            "target": attention.target,
        },
        "heads": counts[first.kind][1],
        "kinds": {
            kind: {
                "rows": "source" if kind == "encoder" else "target",
                "columns": "read" if kind == "decoder" else "source",
                "layers": counts[kind][0],
                "weights": _encoded(attention.weights[kind]),
            }
            for kind in KINDS
        },
        "start": {
            "kind": first.kind,
            "layer": first.layer,
            "heads": [head.head for head in start],
        },
        "masked": [str(head) for head in masked],
        "tree": None if tree is None else _flat(tree, attention.target),
    }
    parts = resources.files("transduce.viewing") / "assets"

    def read(name: str) -> str:
        return (parts / name).read_text(encoding="utf-8")

    scripts = "".join(read(f"{name}.js") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    # What stands between <script> and </script>, with the line that the template begins it with.
    digest = hashlib.sha256(f"\n{script}".encode()).digest()
    filled = {
        "script_hash": f"sha256-{base64.b64encode(digest).decode()}",
        "title": html.escape(title),
        "style": read("page.css"),
        "data": embedded(data),
        "script": script,
    }
    pieces = read("page.html").split("{{")
    named = (piece.split("}}", 1) for piece in pieces[1:])
    return pieces[0] + "".join(filled[name] + rest for name, rest in named)


def embedded(value: Any) -> str:
    """JSON that may stand in a script element: ASCII, without <, > and &."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _encoded(weights: np.ndarray) -> str:
    return base64.b64encode(weights.astype("<f4").tobytes()).decode()


def _flat(tree: Tree, target: Sequence[str]) -> dict[str, Any]:
    """The tree as a list of nodes, parents first: no depth is too much for JSON so.

    Each has its label, its word or None, and its parent's number, -1 for the root. With it comes
    the node of each token of `target`, -1 where there is none.
    """
    nodes: list[tuple[str, str | None, int]] = []
    opened: list[int] = []  # nodes of the symbols
    todo: list[tuple[Tree, int] | int] = [(tree, -1)]
    while todo:
        item = todo.pop()
        if isinstance(item, int):
            opened.append(item)
            continue
        node, parent = item
        number = len(nodes)
        nodes.append((node.label, node.word, parent))
        opened.append(number)
        if node.word is None:
            todo.append(number)
            todo.extend((child, number) for child in reversed(node.children))
    rows = [-1] * len(target)
    for place, (token, symbol) in enumerate(zip(target, linearize(tree), strict=False)):
        if token != symbol:
            break
        rows[place] = opened[place]
    return {"nodes": nodes, "brackets": str(tree), "rows": rows}
