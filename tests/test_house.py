"""The rules of the house that a machine can check; CONTRIBUTING.md says why they are there."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "transduce"

# In this order: a room imports only from rooms before it.
ROOMS = [
    "config_checks",
    "config_data",
    "config",
    "config_files",
    "arrays",
    "parallel",
    "model",
    "text",
    "pipeline",
    "workdir",
    "damage",
    "checkpoints",
    "decoding",
    "evaluation",
    "training",
    "planning",
    "sweeping",
    "viewing",
    "exchange",
    "environment",
    "arguments",
    "cli",
]

MADE_BY_TOOLS = {
    *(".git", ".venv", "runs", "dist", "__pycache__"),
    *(".hypothesis", ".pytest_cache", ".ruff_cache"),
}


def repository_files() -> list[Path]:
    """Files that are committed or would be by `git add .`; outside git, all that no tool made."""
    if not (ROOT / ".git").exists():
        files = (path for path in ROOT.rglob("*") if path.is_file())
        return [
            path for path in files if not MADE_BY_TOOLS.intersection(path.relative_to(ROOT).parts)
        ]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if (ROOT / name).is_file()]


def module_name(path: Path, source: Path) -> str:
    """`source`/text/corpora.py is transduce.text.corpora, a package's __init__.py the package."""
    parts = ["transduce", *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, source: Path) -> Iterator[str]:
    """Names in transduce that a file imports, at its top or inside a function."""
    package = module_name(path, source).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(level=0, module=str(base), names=names):
                found = [f"{base}.{alias.name}" for alias in names]
            case ast.ImportFrom(level=level, module=base, names=names):
                above = package[: len(package) - level + 1]
                found = [
                    ".".join([*above, *([base] if base else []), alias.name]) for alias in names
                ]
            case _:
                continue
        yield from (name for name in found if name.split(".")[0] == "transduce")


def room(name: str) -> str:
    """transduce.text.corpora is in the room text; the package itself in the room ''."""
    return name.removeprefix("transduce").removeprefix(".").split(".")[0]


def upward_imports(source: Path) -> list[str]:
    """One line for each import that does not run downward, or that leaves the rooms."""
    rank = {name: place for place, name in enumerate(ROOMS)}
    wrong = []
    for path in sorted(source.rglob("*.py")):
        here = room(module_name(path, source))
        targets = [room(name) for name in imports(path, source)]
        # The package's own __init__.py stands in no room and so imports from none.
        if here == "" and not targets:
            continue
        if here not in rank:
            wrong.append(f"{path.relative_to(source)} is in no room")
            continue
        wrong += [
            f"{path.relative_to(source)} imports from {target or 'the package itself'}"
            for target in targets
            if rank.get(target, len(ROOMS)) > rank[here]
        ]
    return wrong


def test_imports_run_downward() -> None:
    assert upward_imports(SOURCE) == []


@pytest.mark.parametrize(
    "line",
    [
        "import transduce.training.loop",
        "from transduce.training.loop import train",
        "from transduce.training import loop",
        "from transduce import training",
        "from ..training.loop import train",
        "from .. import training",
        "def f():\n    from transduce.training.loop import train",
    ],
)
def test_every_form_of_an_upward_import_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "layers.py").write_text(f"import jax\n{line}\n")
    (tmp_path / "cli.py").write_text("from transduce.model import layers\n")
    assert upward_imports(tmp_path) == ["model/layers.py imports from training"]


def test_imports_make_no_circle() -> None:
    files = {module_name(path, SOURCE): path for path in SOURCE.rglob("*.py")}
    graph = {}
    for name, path in files.items():
        # `from transduce.text import corpora` names a module, `... import load` something in one.
        targets = {
            target if target in files else target.rpartition(".")[0]
            for target in imports(path, SOURCE)
        }
        graph[name] = targets & files.keys()
    graphlib.TopologicalSorter(graph).prepare()


def test_the_configuration_is_read_without_jax() -> None:
    program = "import sys, transduce.config; print('jax' in sys.modules)"
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, cwd=ROOT / "src", check=True, capture_output=True, text=True)
    assert answer.stdout == "False\n"


def test_no_file_names_a_registry_or_a_machine() -> None:
    # The patterns are written so that they do not find themselves here.
    forbidden = re.compile(
        rb"(pypi|pythonhosted|npmjs|crates|debian)\.(org|com|io)"
        rb"|--(extra-)?index-url[ =]|--find-links[ =]"
        rb"|(?<![\w.])/(root|home|Users|work)/"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in repository_files()
        for match in forbidden.finditer(path.read_bytes())
    ]
    assert found == []


def test_no_source_file_is_over_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_bytes().count(b"\n")
        for path in repository_files()
        if path.suffix == ".py"
    }
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}


def test_every_dependency_has_one_tested_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []

    def plain(requirement: str) -> str:
        name = re.split(r"[\[<>=]", requirement, maxsplit=1)[0]
        return name.lower().replace("_", "-")

    assert {plain(requirement) for requirement in wanted} - {plain(pin) for pin in pins} == set()


@pytest.mark.slow
def test_a_built_wheel_is_typed_and_has_every_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("transduce-*.whl")
    expected = {f"transduce/{path.relative_to(SOURCE)}" for path in SOURCE.rglob("*.py")}
    assets = (path for path in (SOURCE / "viewing" / "assets").iterdir() if path.is_file())
    expected |= {f"transduce/{path.relative_to(SOURCE)}" for path in assets}
    assert expected | {"transduce/py.typed"} <= set(zipfile.ZipFile(wheel).namelist())


def test_translating_does_not_load_what_prepares_corpora() -> None:
    """TensorFlow Datasets and Grain take a third of a second to import."""
    program = """
import sys, transduce.decoding.verbs, transduce.viewing.verb
print(*sorted({"tensorflow_datasets", "grain"} & set(sys.modules)))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("\n", 0), found.stderr
