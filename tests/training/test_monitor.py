import json

import pytest

from transduce.parallel import hosts
from transduce.training.monitor import Monitor, duration
from transduce.workdir import Workdir


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (59.4, "0:59"),
        (59.6, "1:00"),
        (3599, "59:59"),
        (3723, "1:02:03"),
        (90061, "25:01:01"),
    ],
)
def test_a_duration_is_in_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_records_are_lines_of_json_and_tensorboard_events(tmp_path, capsys) -> None:
    workdir = Workdir.of(str(tmp_path))
    with Monitor(workdir) as monitor:
        monitor.record("train", 3, loss=1.5)
    # A run that goes on adds to what is there.
    with Monitor(workdir) as monitor:
        monitor.record("dev", 4, bleu=20.5, bleu_signature="a|b")
        monitor.say("[bold] 1 Zeile")
        monitor.progress("100 of 200")
    lines = workdir.metrics.read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record.pop("time") > 0 for record in records] == [True, True]
    assert records == [
        {"kind": "train", "step": 3, "loss": 1.5},
        {"kind": "dev", "step": 4, "bleu": 20.5, "bleu_signature": "a|b"},
    ]
    events = b"".join(path.read_bytes() for path in workdir.tensorboard.iterdir())
    assert b"train/loss" in events
    assert b"dev/bleu" in events
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "[bold] 1 Zeile\n100 of 200\n"


def test_of_several_processes_the_first_alone_writes(
    tmp_path, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "process", lambda: (1, 2))
    with Monitor(Workdir.of(str(tmp_path))) as monitor:
        monitor.record("train", 3, loss=1.5)
        monitor.say("said")
        monitor.progress("100 of 200")
    assert list(tmp_path.iterdir()) == []
    assert tuple(capfd.readouterr()) == ("", "")
