"""The page in a real browser: what is seen and heard, by pointer and by keyboard."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from transduce.model.heads import Head
from transduce.text.treebank import Tree
from transduce.viewing.attention import Attention
from transduce.viewing.page import attention_page

from .browser import Browser, chromium
from .conftest import NASTY, SOURCE, TARGET

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium() is None, reason="no Chromium here: apt-get install chromium brings one"
    ),
]

START = [Head(kind="cross", layer=1, head=head) for head in (0, 2)]
WORD = 'button[data-side="{}"][data-index="{}"]'
LINES = (
    "[...document.querySelectorAll('.lines line')]"
    ".map(l => [l.dataset.head, l.dataset.row, l.dataset.column].map(Number))"
)
READOUT = "document.getElementById('readout').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, attention: Attention) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    tree = Tree("S", [Tree("NN", word=NASTY), Tree("NN", word="dog")])
    text = attention_page(
        attention,
        title=NASTY,
        about=[("Source", NASTY)],
        start=START,
        masked=[Head(kind="cross", layer=1, head=1)],
        tree=tree,
    )
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    assert program is not None
    profile = tmp_path_factory.mktemp("profile")
    with Browser.open(program, profile, width=1300, height=900) as browser:
        yield browser


@pytest.fixture
def browser(opened: Browser, page: Path) -> Iterator[Browser]:
    opened.prefer("light")
    opened.move(1, 1)
    opened.go(page)
    yield opened
    assert opened.complaints == []


def expected_lines(weights: np.ndarray, heads: list[int], *, least: float) -> set[tuple]:
    """(head, row, column) of the weights that are drawn."""
    return {
        (head, int(row), int(column))
        for head in heads
        for row, column in zip(*(weights[head] >= least).nonzero(), strict=True)
        if weights[head, row, column] > 0
    }


def lines(browser: Browser) -> set[tuple]:
    found = [tuple(line) for line in browser.run(LINES)]
    assert len(found) == len(set(found))
    return set(found)


def test_lines_follow_pointer_and_click(browser: Browser, attention: Attention) -> None:
    weights = attention.weights["cross"][1]
    everything = expected_lines(weights, [0, 2], least=0.05)
    assert lines(browser) == everything
    assert browser.run("document.title") == NASTY

    browser.hover(WORD.format("row", 1))
    row = {line for line in expected_lines(weights, [0, 2], least=0) if line[1] == 1}
    assert lines(browser) == row
    means = weights[[0, 2], 1].mean(axis=0)
    best = int(means.argmax())
    name = f"\u201c{SOURCE[best].removeprefix('\u2581')}\u201d"
    if SOURCE.count(SOURCE[best]) > 1:
        name += f" ({best + 1})"
    said = browser.run(READOUT)
    assert said.startswith(f"\u201cNN\u201d looks most at {name} {means[best]:.3f}, ")
    assert said.endswith("(mean of heads 0, 2)")
    browser.move(1, 1)
    assert lines(browser) == everything

    browser.click(WORD.format("column", 2))
    column = {line for line in expected_lines(weights, [0, 2], least=0) if line[2] == 2}
    browser.move(1, 1)
    assert lines(browser) == column
    browser.click(WORD.format("column", 2))
    browser.move(1, 1)
    assert lines(browser) == everything


def test_heads_layers_and_kinds_are_switched(browser: Browser, attention: Attention) -> None:
    weights = attention.weights["cross"]
    browser.click('#heads [data-head="0"]')
    assert lines(browser) == expected_lines(weights[1], [2], least=0.05)
    browser.click("#no-heads")
    assert lines(browser) == set()
    browser.click("#all-heads")
    assert lines(browser) == expected_lines(weights[1], [0, 1, 2], least=0.05)
    browser.click('[data-key="cross.0.1"]')
    assert lines(browser) == expected_lines(weights[0], [1], least=0.05)
    browser.click('[data-key="layer-0"]')
    assert lines(browser) == expected_lines(weights[0], [0, 1, 2], least=0.05)
    browser.click('[data-key="decoder"]')
    assert lines(browser) == expected_lines(attention.weights["decoder"][0], [0, 1, 2], least=0.05)
    words = "[...document.querySelectorAll('ul.{} button')].map(b => b.textContent)"
    assert browser.run(words.format("rows")) == list(TARGET)
    assert browser.run(words.format("columns")) == ["<s>", *TARGET[:-1]]
    browser.run(
        "(() => { const e = document.getElementById('least'); e.value = 0.3;"
        " e.dispatchEvent(new Event('input')); })()"
    )
    assert lines(browser) == expected_lines(attention.weights["decoder"][0], [0, 1, 2], least=0.3)


def test_matrices_and_the_table_have_exact_values(browser: Browser, attention: Attention) -> None:
    weights = attention.weights["cross"][1]
    browser.click('[data-key="matrices"]')
    assert browser.run("document.querySelectorAll('.matrices canvas').length") == 2
    left, top, right, bottom = browser.run(
        "(() => { const b = document.querySelector('canvas[data-head=\"2\"]')"
        ".getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; })()"
    )
    # Cells are 20 wide and end at the lower right corner, a pixel from the edge.
    x = right - 1 - (len(SOURCE) - 1 - 3 + 0.5) * 20
    y = bottom - 1 - (len(TARGET) - 1 - 1 + 0.5) * 20
    assert left < x < right
    assert top < y < bottom
    browser.move(x, y)
    value = float(weights[2, 1, 3])
    assert value >= 0.0001
    told = f"\u201cNN\u201d looks at \u201c{NASTY}\u201d: {value:.6f}"
    assert browser.run(READOUT) == f"cross.1.2: {told}"
    assert browser.run("document.getElementById('tip').textContent") == told
    browser.click('[data-key="table"]')
    assert browser.run("document.getElementById('tip').hidden")
    browser.run(
        "(() => { const e = document.querySelector('select'); e.value = '2';"
        " e.dispatchEvent(new Event('change')); })()"
    )
    cells = browser.run(
        "[...document.querySelectorAll('tbody tr')].map("
        "r => [...r.querySelectorAll('td')].map(c => Number(c.textContent)))"
    )
    np.testing.assert_allclose(cells, weights[2], rtol=1e-3, atol=5e-7)


def test_the_keyboard_is_enough(browser: Browser, attention: Attention) -> None:
    weights = attention.weights["cross"][1]
    everything = expected_lines(weights, [0, 2], least=0.05)
    browser.run("document.querySelector('[data-key=\"lines\"]').focus()")
    # Past the other views to the column of rows.
    for _ in range(3):
        browser.press("Tab", code=9)
    browser.press("ArrowDown", code=40)
    alone = expected_lines(weights, [0, 2], least=0)
    assert lines(browser) == {line for line in alone if line[1] == 1}
    browser.press("ArrowRight", code=39)
    assert lines(browser) == {line for line in alone if line[2] == 1}
    browser.press("End", code=35)
    assert lines(browser) == {line for line in alone if line[2] == len(SOURCE) - 1}
    browser.press("Enter", code=13, text="\r")
    held = "document.querySelector('.lines [aria-pressed=true]').dataset.index"
    assert browser.run(held) == str(len(SOURCE) - 1)
    browser.press("Escape", code=27)
    assert lines(browser) == everything
    browser.run("document.querySelector('[data-key=\"matrices\"]').focus()")
    browser.press("Enter", code=13, text="\r")
    for _ in range(2):
        browser.press("Tab", code=9)
    for _ in range(3):
        browser.press("ArrowRight", code=39)
    value = float(weights[0, 0, 2])
    shown = f"{value:.6f}" if value >= 0.0001 else f"{value:.3e}".replace("e-0", "e-")
    assert (
        browser.run(READOUT) == f"cross.1.0: \u201c(S\u201d looks at \u201cdog\u201d (3): {shown}"
    )


def test_a_screen_reader_is_told_of_everything(browser: Browser) -> None:
    nodes = browser.accessible()

    def named(role: str) -> dict[str, dict]:
        return {node["name"]: node for node in nodes if node["role"] == role}

    buttons = named("button")
    assert buttons["Cross-attention"]["pressed"] == "true"
    assert buttons["Encoder self-attention"]["pressed"] == "false"
    assert buttons["Head 0"]["pressed"] == "true"
    assert buttons["Head 1, masked"]["pressed"] == "false"
    assert {"Layer 0", "cross.0.2 alone", "cross.1.1 alone, masked", "Lines"} <= buttons.keys()
    assert {"dog, 2 of 6", "dog, 3 of 6", f"{NASTY}, 4 of 6", "NN, 2 of 5"} <= buttons.keys()
    assert "" not in buttons
    assert {"View", "Attention of", "Heads switched on"} <= named("group").keys()
    assert "Draw lines from weight" in named("slider")
    assert named("heading").keys() >= {"Attention", "Parse tree", "Cross-attention, layer 1"}
    browser.click('[data-key="table"]')
    nodes = browser.accessible()
    assert {"the", "dog", NASTY} <= named("columnheader").keys()
    assert {"(S", "NN", "</s>"} <= named("rowheader").keys()


def test_tree_and_target_belong_together(browser: Browser, attention: Attention) -> None:
    marked = "[...document.querySelectorAll('#tree .active')].map(e => e.textContent)"
    browser.hover(WORD.format("row", 1))
    assert browser.run(marked) == [f"NN {NASTY}"]
    browser.click('#tree button[data-row="0"]')
    browser.move(1, 1)
    assert browser.run(marked) == ["S"]
    weights = attention.weights["cross"][1]
    alone = expected_lines(weights, [0, 2], least=0)
    assert lines(browser) == {line for line in alone if line[1] == 0}


def test_it_is_light_or_dark_as_the_reader_prefers(browser: Browser, tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(ground) == "rgb(250, 249, 247)"
    browser.screenshot(tmp_path / "light.png")
    browser.prefer("dark")
    browser.wait(f"{ground} === 'rgb(19, 20, 22)'")
    browser.screenshot(tmp_path / "dark.png")
    light, dark = ((tmp_path / f"{name}.png").read_bytes() for name in ("light", "dark"))
    assert light.startswith(b"\x89PNG")
    assert dark.startswith(b"\x89PNG")
    assert light != dark


def test_on_a_narrow_screen_nothing_is_wider_than_it(browser: Browser) -> None:
    browser.resize(400, 800)
    try:
        assert browser.run("document.documentElement.scrollWidth") <= 400
    finally:
        browser.resize(1300, 900)
