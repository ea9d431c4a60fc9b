"""No key of the configuration is without a reader.

The type checker is asked who reads what: in a copy of the package each field becomes a property
that is marked as deprecated, and pyright reports every expression that reads it, by class and
name, so `size` of one dataclass is not taken for `size` of another.

It can be fooled by a reader that is never run or ignores what it read, and by one that has lost
the type (Any): the latter makes the test fail, which an annotation mends. Copies of a whole
configuration (JSON, comparisons) read no field by name and do not count.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

FILES = ("config.py", "config_data.py")
"""Where the dataclasses of the configuration are."""

SOURCE = Path(__file__).resolve().parent.parent / "src" / "transduce"

WATCHED = """
@property
@deprecated("{owner}.{name}")
def {name}(self) -> {kind}: ...
"""


def watch(config: ast.Module) -> list[str]:
    """Puts a watched property in place of each field; returns `Class.field` for all of them."""
    names = []
    for owner in config.body:
        if not isinstance(owner, ast.ClassDef):
            continue
        body: list[ast.stmt] = []
        for statement in owner.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    kind = ast.unparse(annotation)
                    code = WATCHED.format(owner=owner.name, name=name, kind=kind)
                    body += ast.parse(code).body
                    names.append(f"{owner.name}.{name}")
                case _:
                    body.append(statement)
        owner.body = body
    config.body.insert(0, ast.parse("from warnings import deprecated").body[0])
    return names


def fields_and_readers(source: Path, folder: Path) -> tuple[list[str], set[str]]:
    """Fields of FILES in `source`, and those that any other file in `source` reads."""
    shutil.copytree(source, folder / "transduce", ignore=shutil.ignore_patterns("__pycache__"))
    fields = []
    for path in (folder / "transduce" / name for name in FILES):
        if path.exists():
            config = ast.parse(path.read_text(encoding="utf-8"))
            fields += watch(config)
            path.write_text(ast.unparse(config), encoding="utf-8")
    settings = {
        "include": ["transduce"],
        "pythonVersion": "3.13",  # warnings.deprecated is that new; only pyright reads the copy
        "typeCheckingMode": "off",
        "reportDeprecated": "error",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--project", str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True)
    read = set()
    for found in json.loads(answer.stdout)["generalDiagnostics"]:
        name = re.search(r"^\s+(\w+\.\w+)$", found["message"], flags=re.MULTILINE)
        if name and Path(found["file"]).name not in FILES:
            read.add(name[1])
    return fields, read


def test_every_field_is_read_somewhere(tmp_path: Path) -> None:
    fields, read = fields_and_readers(SOURCE, tmp_path)
    assert len(fields) > 50
    assert set(fields) - read == set()


def test_a_field_without_a_reader_is_found(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.py").write_text(
        "class Vocabulary:\n    size: int = 3\n    kind: str = ''\n"
        "class Data:\n    vocabulary: Vocabulary\n    size: int = 4\n    seed: int = 1\n"
    )
    (tmp_path / "source" / "reader.py").write_text(
        "from transduce.config import Data\n"
        "def read(data: Data, other):\n"
        "    vocabulary = data.vocabulary\n"
        "    return lambda: vocabulary.size + other.seed + Data(seed=1)\n"
    )
    fields, read = fields_and_readers(tmp_path / "source", tmp_path)
    assert set(fields) - read == {"Vocabulary.kind", "Data.size", "Data.seed"}
