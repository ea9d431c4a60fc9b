"""Lines that are added to a file, where it can be added to and where it cannot."""

from pathlib import Path
from typing import Any

import pytest
from etils import epath

from transduce.training import records
from transduce.training.records import Records


def test_lines_are_there_at_once_and_half_a_line_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st')
    kept = Records(epath.Path(path))
    kept.add("é")
    assert path.read_bytes() == '{"step": 1}\né\n'.encode()
    kept.close()


class InACloud:
    """A path whose file can be read and written whole only."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def __fspath__(self) -> str:
        return "gs://bucket/metrics.jsonl"

    def exists(self) -> bool:
        return bool(self.written)

    def read_bytes(self) -> bytes:
        return self.written[-1]

    def write_bytes(self, data: bytes) -> None:
        self.written.append(data)


def test_in_a_cloud_all_lines_are_written_again_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of before a restart too."""
    now = [1000.0]
    monkeypatch.setattr(records.time, "monotonic", lambda: now[0])
    cloud: Any = InACloud()  # as much of a path as is used
    first = Records(cloud)
    first.add("a")
    now[0] += 59
    first.add("b")
    assert cloud.written == [b"a\n"]
    now[0] += 1
    first.add("c")
    assert cloud.written[1:] == [b"a\nb\nc\n"]
    first.add("d")
    first.close()
    assert cloud.written[2:] == [b"a\nb\nc\nd\n"]
    again = Records(cloud)
    again.add("e")
    assert cloud.written[-1] == b"a\nb\nc\nd\ne\n"
