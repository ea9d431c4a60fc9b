"""Trees for tests."""

from hypothesis import strategies as st

from transduce.text.treebank import Tree

LABELS = st.sampled_from(["S", "NP", "VP", "X", "-LRB-", "ADVP|PRT", "\u00a0", "Ä"])
TAGS = st.sampled_from(["NN", "X", ".", ",", "``", "-LRB-", "-RRB-", "PRP$", "S", "\u2028"])
WORDS = st.sampled_from(["word", "-LRB-", ".", "a\u00a0b", "\u2028", "\x85", "*T*-1", "=", "Öl"])
LEAVES = st.builds(lambda tag, word: Tree(tag, word=word), TAGS, WORDS)


def constituents(
    inside: st.SearchStrategy[Tree], labels: st.SearchStrategy[str] = LABELS
) -> st.SearchStrategy[Tree]:
    return st.builds(Tree, labels, st.lists(inside, min_size=1, max_size=4))


# One constituent over at least one word, as all trees are after cleaning.
TREES = constituents(st.recursive(LEAVES, constituents, max_leaves=25), LABELS | st.just("TOP"))


def deep_and_wide(depth: int) -> tuple[Tree, str]:
    """A tree with `depth` nested constituents, each with a word on either side, and its brackets.

    The words are 0 to 2 * `depth`, from left to right.
    """
    tree, written = Tree("NN", word=str(depth)), f"(NN {depth})"
    for level in reversed(range(depth)):
        left, right = Tree("A", word=str(level)), Tree("B", word=str(2 * depth - level))
        tree = Tree(f"L{level % 7}", [left, tree, right])
        written = f"(L{level % 7} (A {level}) {written} (B {2 * depth - level}))"
    return tree, written
