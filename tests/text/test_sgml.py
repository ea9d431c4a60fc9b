import gzip
from pathlib import Path

import pytest
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from transduce.config import RequestError
from transduce.text.sgml import parse_sgml, read_parallel_sgml

SOURCE = """<srcset setid="newstest2014" srclang="any">
<doc sysid="ref" docid="1-bbc" genre="news" origlang="en">
<hl>
<seg id="1">Two dogs &amp; a cat</seg>
</hl>
<p>
<seg id="2">AT&T pays 3 &lt; 4 &#8364;, "now"</seg>
<seg id="3"></seg>
</p>
</doc>
<DOC docid='2-cnn'>
<SEG id=1>  a  b\u00a0
  c </SEG><seg id="2">x</seg>
</DOC>
</srcset>
"""


def test_segments_come_in_order_with_their_entities_as_characters() -> None:
    segments = parse_sgml(SOURCE, name="a.sgm")
    assert list(segments.items()) == [
        (("1-bbc", "1"), "Two dogs & a cat"),
        (("1-bbc", "2"), 'AT&T pays 3 < 4 €, "now"'),
        (("1-bbc", "3"), ""),
        (("2-cnn", "1"), "a  b\u00a0 c"),
        (("2-cnn", "2"), "x"),
    ]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("&amp;lt;", "&lt;"),
        ("&quot;&apos;&#x41;&eacute;", "\"'Aé"),
        ("R&D; &copy &unknown; 5 & 6", "R&D; &copy &unknown; 5 & 6"),
        ("a&#10;b", "a b"),
        ("<b>not SGML</b>", "<b>not SGML</b>"),
        ("\u2028a\x85", "\u2028a\x85"),
    ],
)
def test_only_entities_and_line_breaks_are_changed(text: str, plain: str) -> None:
    assert parse_sgml(f'<seg id="1">{text}</seg>', name="a") == {("", "1"): plain}


def test_sacrebleu_reads_the_same(tmp_path: Path) -> None:
    lines = ["Ein Satz.", "Größe: 5 %", "(Ende)"]
    text = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in enumerate(lines, 1))
    path = tmp_path / "a.sgm"
    path.write_text(f'<doc docid="d">\n{text}</doc>\n', encoding="utf-8")
    reader = FakeSGMLDataset("name", data=[], md5=[], description="")
    reader._convert_format(str(path), str(tmp_path / "plain"))
    read = list(parse_sgml(path.read_text(encoding="utf-8"), name="a").values())
    assert read == (tmp_path / "plain").read_text(encoding="utf-8").splitlines() == lines


def sgml(segments: dict[tuple[str, int], str]) -> str:
    return "".join(
        f'<doc docid="{document}">\n<seg id="{number}">{text}</seg>\n</doc>\n'
        for (document, number), text in segments.items()
    )


def test_sides_are_aligned_by_their_ids(tmp_path: Path) -> None:
    """T1: not by their places."""
    source, target = tmp_path / "s.sgm", tmp_path / "t.sgm.gz"
    source.write_text(sgml({("a", 1): "one", ("a", 2): "two", ("b", 1): "three"}))
    german = sgml({("b", 1): "drei", ("a", 1): "eins", ("a", 2): "zwei"})
    target.write_bytes(gzip.compress(german.encode()))
    pairs = [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert read_parallel_sgml(source, target) == pairs


def test_a_segment_without_counterpart_is_named(tmp_path: Path) -> None:
    """T7: not one of two sides of different length is cut."""
    short, long = tmp_path / "short.sgm", tmp_path / "long.sgm"
    short.write_text(sgml({("a", 1): "one"}))
    long.write_text(sgml({("a", 1): "eins", ("a", 7): "zwei"}))
    message = r"long\.sgm has segment 7 of document a, .*short\.sgm has not"
    for sides in ((short, long), (long, short)):
        with pytest.raises(RequestError, match=message):
            read_parallel_sgml(*sides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x: has no <seg id=\.\.\.>\.\.\.</seg>"),
        ('<seg id="1">a\n<seg id="2">b</seg>', "x: has 2 <seg .*> are closed|1 of them"),
        ('<seg id="1">a</seg>\n<seg id="2">b', "x: has 2 <seg .*, but 1 of them"),
        (
            '<doc docid="d"><seg id="4">a</seg><seg id="4">b</seg>',
            "x: segment 4 of document d is there twice",
        ),
        ("<seg>a</seg><seg>b</seg>", "x: segment without id of document without docid is there"),
    ],
)
def test_what_is_no_set_of_segments_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_sgml(text, name="x")


def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path: Path) -> None:
    """T11."""
    path = tmp_path / "a.sgm"
    path.write_bytes(b'<doc docid="d">\n<seg id="1">\xff</seg>\n</doc>\n')
    with pytest.raises(RequestError, match=r"a\.sgm, line 2: not UTF-8"):
        read_parallel_sgml(path, path)
