"""The table of cases in README.md is whole, and the tests that it names are there."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROW = re.compile(r"\| ([TDRE][0-9]+) \|.*\| (`.*`) \|")
CASES = [
    *(f"T{number}" for number in range(1, 12)),
    *(f"D{number}" for number in range(1, 13)),
    *(f"R{number}" for number in range(1, 21)),
    *(f"E{number}" for number in range(1, 4)),
]


def rows() -> list[tuple[str, list[str]]]:
    """Each case with the tests that its row names."""
    found = [ROW.fullmatch(line) for line in (TESTS / "README.md").read_text().splitlines()]
    return [(row[1], re.findall("`([^`]+)`", row[2])) for row in found if row]


def docstrings(path: Path) -> dict[str, str]:
    """Of the tests in a file, by name."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_case_has_a_row() -> None:
    assert [case for case, _ in rows()] == CASES


def test_every_test_named_is_there_and_names_its_case() -> None:
    wrong = []
    for case, tests in rows():
        assert tests, case
        for test in tests:
            path, name = test.split("::")
            there = docstrings(TESTS / path) if (TESTS / path).exists() else {}
            if not re.search(rf"\b{case}\b", there.get(name, "")):
                wrong.append((case, test))
    assert wrong == []
