"""Text from strangers: whatever the bytes are, each line has its answer."""

import math
import random
from pathlib import Path

from transduce.arrays import BOS, EOS, PAD, UNK
from transduce.decoding.translator import Translator
from transduce.text.lines import readable
from transduce.text.vocabulary import Vocabulary

from .files import lines_of, read, records, standard_input, warnings, write

# Right-to-left marks and overrides, a family of emoji joined without width, a flag, a skin tone,
# combining marks without a letter, a byte order mark inside.
ODD = [
    "\u202eabc\u202c \u200f\u05d0\u05d1",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44b\U0001f3fd",
    "\u0301\u0301\u0301 a\ufeffb",
]
SYMBOLS = ["<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "<0x00>", "\u2581", "\u2585", "[PAD]", "</s"]


def noise(generator: random.Random) -> bytes:
    """A line of any bytes but a newline, or of text with a few such in it."""
    kind = generator.randrange(4)
    if kind == 0:
        data = generator.randbytes(generator.randrange(60))
    elif kind == 1:
        parts = generator.choices([*ODD, *SYMBOLS, " ", "man", "the"], k=generator.randrange(12))
        data = "".join(parts).encode()
    else:
        data = bytearray("the man \u00fcber \U0001f469 \u4e2d".encode())
        for _ in range(generator.randrange(6)):
            data[generator.randrange(len(data))] = generator.choice(b"\0\xff\xc3\xed\x80\r\x0b\x1f")
    return bytes(data).replace(b"\n", b"")


def replaced(line: bytes) -> str:
    """What stands for the line: U+FFFD for NUL and for each byte that Python cannot decode."""
    text = ""
    while line:
        try:
            text += line.decode()
            break
        except UnicodeDecodeError as error:
            text += line[: error.start].decode() + "\ufffd"
            line = line[error.start + 1 :]
    return text.replace("\0", "\ufffd")


def test_three_hundred_lines_of_any_bytes_have_an_answer_each(
    command, workdir: Path, tmp_path: Path
) -> None:
    """T11: the answer to the same line with U+FFFD in it; a warning names the line."""
    generator = random.Random(9)
    # The first is not taken for gzip's first two bytes.
    lines = [b"the man", *(noise(generator) for _ in range(299))]
    source, plain = tmp_path / "source", tmp_path / "plain"
    source.write_bytes(b"".join(line + b"\n" for line in lines))
    status, _, err = command("translate", workdir, "--input", source, "--output", tmp_path / "out")
    assert status == 0
    texts = [replaced(line) for line in lines]
    assert command("translate", workdir, "--input", write(plain, texts), "--output", plain)[0] == 0
    made = read(tmp_path / "out")
    assert len(made) == 300
    assert made == read(plain)
    noted = [
        line.split("line ")[1].split(":")[0]
        for line in warnings(err, count="300 lines")
        if "read as U+FFFD" in line
    ]
    expected = [
        str(number)
        for number, (line, text) in enumerate(zip(lines, texts, strict=True), start=1)
        if line.count("\ufffd".encode()) < text.count("\ufffd")
    ]
    assert noted == expected
    assert len(expected) > 100


def test_what_is_no_text_is_counted() -> None:
    assert readable("the man") == ("the man", "")
    note = "3 bytes that are NUL or not UTF-8 read as U+FFFD"
    # Half of a surrogate pair in UTF-8 is three bytes.
    for data, text in [
        (b"a\xed\xa0\x80b", "a\ufffd\ufffd\ufffdb"),
        (b"\0\0a\xff", "\ufffd\ufffda\ufffd"),
    ]:
        assert readable(data.decode(errors="surrogateescape")) == (text, note)
    assert readable("\0") == ("\ufffd", "1 byte that is NUL or not UTF-8 read as U+FFFD")


def test_lines_of_a_pipe_are_answered_whatever_they_are(
    command, workdir: Path, translator: Translator
) -> None:
    """T10, T11."""
    texts = ["the man", "a dog", "caf\ufffd", "the house"]
    expected = [found.hypotheses[0].text for found in translator.translate(texts)]
    with standard_input(b"the man\na dog\ncaf\xe9\nthe house\n"):
        status, out, err = command("translate", workdir)
    assert (status, lines_of(out)) == (0, expected)
    note = "1 byte that is NUL or not UTF-8 read as U+FFFD"
    assert warnings(err, count="4 lines") == [f"transduce: warning: line 3: {note}"]
    with standard_input(b"the man\na\0dog\n"):
        status, out, _ = command("translate", workdir, "--format", "jsonl")
    assert (status, [record["notes"] for record in records(out)]) == (0, [[], [note]])


def test_text_never_becomes_a_control_symbol(vocabulary: Vocabulary) -> None:
    for text in [*ODD, *SYMBOLS, "".join(SYMBOLS), " ".join(SYMBOLS), "a</s>b <s> c"]:
        ids = vocabulary.encode(text)
        assert ids[-1] == EOS
        assert not {PAD, BOS, EOS, UNK}.intersection(ids[:-1])
        assert vocabulary.decode(ids) == text


def test_megabyte_lines_are_answered(command, workdir: Path, tmp_path: Path) -> None:
    """T4: cut, as any other long line; with and without a space in them."""
    lines = ["the man", "man " * (1 << 14), "a dog", "x" * (1 << 20), "\U0001f469" * (1 << 14)]
    source = write(tmp_path / "source", lines)
    status, _, err = command("translate", workdir, "--input", source, "--output", tmp_path / "out")
    assert status == 0
    assert len(read(tmp_path / "out")) == 5
    warned = [line.split(":")[2] for line in warnings(err, count="5 lines")]
    assert warned == [" line 2", " line 4", " line 5"]


def test_any_bytes_are_scored_but_for_lines_beyond_reason(
    command, workdir: Path, tmp_path: Path
) -> None:
    """T11: finite, one number a line; nothing is cut, so a megabyte is refused by its line."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"the man\ncaf\xe9\na\0b\n\n")
    target.write_bytes(b"a dog\n\xff\xfe\n</s>\nx\0\n")
    status, out, err = command("score", workdir, "--source", source, "--target", target)
    assert status == 0
    assert all(math.isfinite(float(line)) for line in lines_of(out))
    assert out.count("\n") == 4
    places = [line.removeprefix("transduce: warning: ").split(": ")[0] for line in lines_of(err)]
    assert places == [
        *(f"{source}, line {number}" for number in (2, 3)),
        *(f"{target}, line {number}" for number in (2, 4)),
    ]
    source.write_bytes(b"the man\n" + b"x" * (1 << 20) + b"\n\n\n")
    status, out, err = command("score", workdir, "--source", source, "--target", target)
    assert (status, out) == (2, "")
    assert "line 2: 1,048,57" in err.splitlines()[-1]
    assert err.splitlines()[-1].endswith("tokens are more than can be scored (16,384)")
