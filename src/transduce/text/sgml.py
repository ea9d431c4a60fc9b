"""Test sets in the SGML of WMT and NIST: documents of numbered segments.

The files are no proper XML: a plain "&" or "<" may stand in the text. sacreBLEU's reader keeps
entities as they are and turns all white space into spaces, so this is not it.
"""

import html
import os
import re

from transduce.config import RequestError
from transduce.text.lines import read_lines

_TAGS = re.compile(
    r"<doc\b(?P<doc>[^>]*)>|<seg\b(?P<seg>[^>]*)>(?P<text>.*?)</seg\s*>", re.I | re.S
)


def parse_sgml(text: str, *, name: str) -> dict[tuple[str, str], str]:
    """Document and segment id, to the segment's text, in the order of the file.

    Entities become characters, line breaks inside a segment a space, and the ends are stripped.
    Raises `RequestError`, in which `name` stands for the file, when there is no segment, one is
    not closed, or two are the same one of the same document.
    """
    segments: dict[tuple[str, str], str] = {}
    document = ""
    for match in _TAGS.finditer(text):
        if match["doc"] is not None:
            document = _attribute(match["doc"], "docid")
            continue
        key = document, _attribute(match["seg"], "id")
        if key in segments:
            raise RequestError(
                f"{name}: segment {_describe(key)} is there twice; a file must have one "
                "translation, with an id for each segment"
            )
        segments[key] = _plain(match["text"])
    opened = len(re.findall(r"<seg\b", text, re.I))
    if opened != len(segments):
        raise RequestError(
            f"{name}: has {opened} <seg ...>, but {len(segments)} of them are closed"
        )
    if not segments:
        raise RequestError(f"{name}: has no <seg id=...>...</seg>")
    return segments


def _attribute(attributes: str, name: str) -> str:
    found = re.search(rf"""\b{name}\s*=\s*(?:"([^"]*)"|'([^']*)'|(\S+))""", attributes, re.I)
    return next(filter(None, found.groups()), "") if found else ""


def _plain(text: str) -> str:
    """Only entities that end in ";" are taken for such: "AT&T" stays."""
    text = re.sub(
        r"&(#\d+|#x[0-9a-f]+|\w+);", lambda found: html.unescape(found[0]), text, flags=re.I
    )
    return re.sub(r"[ \t\r]*\n[ \t\r]*", " ", text.strip(" \t\r\n"))


def _describe(key: tuple[str, str]) -> str:
    return f"{key[1] or 'without id'} of document {key[0] or 'without docid'}"


def parallel_segments(
    source: dict[tuple[str, str], str],
    target: dict[tuple[str, str], str],
    *,
    names: tuple[str, str],
) -> list[tuple[str, str]]:
    """The texts of the segments that have the same ids, in the source's order.

    Raises `RequestError` when a segment has no counterpart.
    """
    for have, other, name, other_name in ((source, target, *names), (target, source, *names[::-1])):
        for key in have:
            if key not in other:
                raise RequestError(f"{name} has segment {_describe(key)}, {other_name} has not")
    return [(text, target[key]) for key, text in source.items()]


def read_parallel_sgml(
    source: str | os.PathLike[str], target: str | os.PathLike[str]
) -> list[tuple[str, str]]:
    """The sentence pairs of two SGML files, plain or gzip; errors as above and in `read_lines`."""
    names = os.fspath(source), os.fspath(target)
    sides = [parse_sgml("\n".join(read_lines(name)), name=name) for name in names]
    return parallel_segments(sides[0], sides[1], names=names)
