"""The page as text: what is in it, and what cannot get out of its place."""

import base64
import hashlib
import json
from html.parser import HTMLParser

import numpy as np

from transduce.model.heads import Head
from transduce.text.treebank import Tree, parse_trees
from transduce.viewing.attention import Attention
from transduce.viewing.page import attention_page, embedded

from .conftest import NASTY, SOURCE, TARGET

START = [Head(kind="cross", layer=1, head=2)]
TITLE = f"{NASTY} {{{{data}}}} &lt;"


class Elements(HTMLParser):
    """The start tags of a page, and what each holds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    def only(self, tag: str, **attributes: str) -> str:
        (text,) = (
            text
            for (name, has), text in zip(self.found, self.texts, strict=True)
            if name == tag and attributes.items() <= has.items()
        )
        return text


def page(attention: Attention, **options) -> str:
    about = [("Source", NASTY), ("Model", "{{script}}")]
    return attention_page(attention, title=TITLE, about=about, start=START, **options)


def data_of(text: str) -> dict:
    return json.loads(Elements(text).only("script", id="data"))


def test_texts_of_strangers_stay_texts(attention: Attention) -> None:
    plain = Elements(attention_page(attention, title="", about=[], start=START))
    nasty = Elements(page(attention))
    assert [tag for tag, _ in nasty.found] == [tag for tag, _ in plain.found]
    assert nasty.only("title").rstrip("\n") == TITLE
    data = data_of(page(attention))
    assert data["about"] == [["Source", NASTY], ["Model", "{{script}}"]]
    assert data["tokens"] == {
        "source": list(SOURCE),
        "read": ["<s>", *TARGET[:-1]],
        "target": list(TARGET),
    }


def test_json_in_a_script_element_is_ascii_without_markup() -> None:
    value = ["</script>", "<!--", "]]>", "&amp;", "\u2028\u2029\x85\0\ud800", "\U0001f600", "'\"\\"]
    text = embedded(value)
    assert text.isascii()
    assert text.isprintable()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_the_page_runs_its_own_script_and_loads_nothing(attention: Attention) -> None:
    text = page(attention)
    elements = Elements(text)
    (policy,) = (
        has["content"] or ""
        for tag, has in elements.found
        if has.get("http-equiv") == "Content-Security-Policy"
    )
    *_, script = elements.texts
    digest = base64.b64encode(hashlib.sha256(script.rstrip("\n").encode() + b"\n").digest())
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest.decode()}'"
    )
    assert not any("src" in has or "href" in has for _, has in elements.found)
    assert text.count("://") == text.count("http://www.w3.org/2000/svg") == 1


def test_every_weight_is_there_to_the_bit(attention: Attention) -> None:
    data = data_of(page(attention))
    assert data["heads"] == 3
    for kind, weights in attention.weights.items():
        given = data["kinds"][kind]
        assert given["layers"] == 2
        tokens = (data["tokens"][given["rows"]], data["tokens"][given["columns"]])
        assert tokens == (list(attention.rows(kind)), list(attention.columns(kind)))
        values = np.frombuffer(base64.b64decode(given["weights"]), "<f4")
        np.testing.assert_array_equal(values.reshape(weights.shape), weights)


def test_it_opens_on_the_heads_it_is_told_and_knows_the_masked(attention: Attention) -> None:
    data = data_of(page(attention, masked=[Head(kind="encoder", layer=0, head=1)]))
    assert data["start"] == {"kind": "cross", "layer": 1, "heads": [2]}
    assert data["masked"] == ["encoder.0.1"]
    assert data["tree"] is None


def test_a_tree_is_a_list_of_nodes_with_the_target_beside_it(attention: Attention) -> None:
    (tree,) = parse_trees(["(S (NN dog) (X (NN runs)))"], name="a test")
    data = data_of(page(attention, tree=tree))
    assert data["tree"] == {
        "brackets": "(S (NN dog) (X (NN runs)))",
        "nodes": [["S", None, -1], ["NN", "dog", 0], ["X", None, 0], ["NN", "runs", 2]],
        # TARGET is (S NN <b> and more: they belong together up to the third token.
        "rows": [0, 1, -1, -1, -1],
    }


def test_both_brackets_of_a_constituent_are_its_node(attention: Attention) -> None:
    tree = Tree("S", [Tree("NN", word="dog")])
    target = ("(S", "NN", ")S", "</s>")
    made = Attention(
        source=attention.source, read=attention.read, target=target, weights=attention.weights
    )
    assert data_of(page(made, tree=tree))["tree"]["rows"] == [0, 1, 0, -1]


def test_a_tree_of_any_depth_has_room(attention: Attention) -> None:
    tree = Tree("NN", word="deep")
    for _ in range(5000):
        tree = Tree("X", [tree])
    data = data_of(page(attention, tree=tree))
    assert [parent for _, _, parent in data["tree"]["nodes"]] == list(range(-1, 5000))
