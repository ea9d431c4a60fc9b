"""What `attend` does."""

import errno
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from transduce.config import RequestError, SearchConfig, WriteFailed
from transduce.config_checks import require
from transduce.decoding.translator import Translator
from transduce.decoding.workdir import Trained
from transduce.model.heads import Head, layers_of, parse_heads
from transduce.parallel import hosts
from transduce.text.lines import readable
from transduce.text.treebank import Tree, clean, parse_trees, same_words, words_of
from transduce.text.trees_as_text import linearize, restore
from transduce.viewing.attention import Attention, attention_of
from transduce.viewing.page import attention_page

type Format = Literal["html", "png", "svg"]
_FORMATS = get_args(Format.__value__)


def attend(
    trained: Trained,
    search: SearchConfig,
    *,
    source: str,
    target: str | None,
    output: str,
    style: Format,
    show: Sequence[str] = (),
    name: str,
) -> None:
    """Writes a page or a picture of the model's attention over a sentence pair to `output`.

    Without a `target` it is the model's own translation by `search`. `show` names layers or heads:
    the panels of a picture, and the first what a page opens on; by default it is cross-attention in
    the last layer but one. `name` is what the page calls the model. Of a parser, the target is a
    tree, and a page has it beside the attention. `output` is written whole or not at all.

    Raises `RequestError` when there are several models, a head does not exist, the source is blank
    or longer than the search reads, a text has a newline, a tree is none over the source's words,
    or the output cannot be written.
    """
    require(len(trained.models) == 1, "attend shows one model: leave out --ensemble")
    model, vocabulary = trained.models[0], trained.vocabulary
    chosen = show or [f"cross.{max(0, layers_of('cross', model.config) - 2)}"]
    panels = [parse_heads(text, model.config) for text in chosen]
    source = _line("--source", source)
    require(bool(words_of(source)), "--source is blank: there is nothing to attend to")
    tree = None
    if target is None:
        made = _translated(trained, search, source)
        written = vocabulary.decode(made)
        if vocabulary.symbols:
            tree, repairs = restore(written, source, known=vocabulary.symbols)
            written = str(tree)
            if repairs:
                _warn(f"the output is no tree over the words, and the tree shown has {repairs}")
    else:
        written = _line("--target", target)
        tree = _tree(written, source) if vocabulary.symbols else None
        text = written if tree is None else " ".join(linearize(tree))
        made = vocabulary.encode_target(text)
    attention = attention_of(model, vocabulary, vocabulary.encode(source), made)
    if style == "html":
        about = [("Source", source), ("Target" if target is not None else "Translation", written)]
        about.append(("Model", name))
        if trained.masked:
            about.append(("Masked heads", ", ".join(map(str, trained.masked))))
        page = attention_page(
            attention,
            title=f"Attention: {source}",
            about=about,
            start=panels[0],
            masked=trained.masked,
            tree=tree,
        )
        data = page.encode()
    else:
        data = _picture(attention, panels, style)
    if hosts.is_first():
        _write(output, data)


def _line(option: str, text: str) -> str:
    require("\n" not in text, f"{option} must be one line, and has a newline")
    text, note = readable(text)
    if note:
        _warn(f"{option}: {note}")
    return text


def _tree(text: str, source: str) -> Tree:
    trees = [clean(tree) for tree in parse_trees([text], name="--target")]
    if len(trees) != 1 or not same_words(trees[0], source):
        raise RequestError(f"--target must be one tree over the words of --source: {source}")
    return trees[0]


def format_of(output: str) -> Format:
    """The format that a file's name ends with; `RequestError` when it does not say."""
    ending = Path(output).suffix.removeprefix(".").lower()
    for style in _FORMATS:
        if ending == style:
            return style
    raise RequestError(
        f"--output {output}: is no name that ends in .{', .'.join(_FORMATS)}: "
        "say which it is to be with --format"
    )


def _warn(note: str) -> None:
    print(f"transduce: warning: {note}", file=sys.stderr)


def _translated(trained: Trained, search: SearchConfig, source: str) -> Sequence[int]:
    """The ids of the best translation, as the search gives them."""
    translator = Translator(trained.models, trained.vocabulary, search)
    (translation,) = translator.translate([source])
    if translation.notes:
        raise RequestError(f"--source: {translation.notes[0]}: give a shorter one, or a --target")
    return translation.hypotheses[0].ids


def _picture(attention: Attention, panels: Sequence[Sequence[Head]], style: str) -> bytes:
    # It takes a second to import, and the extra that brings it may not be there.
    try:
        from transduce.viewing.picture import attention_picture
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise RequestError(
            f"--format {style} needs matplotlib: install the extra, as in pip install -e .[view]"
        ) from error
    data, notes = attention_picture(attention, panels, style=style)
    for note in notes:
        _warn(note)
    return data


def _write(output: str, data: bytes) -> None:
    if output == "-":
        if sys.stdout is None:
            raise RequestError("standard output is closed: give a file with --output")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    # A pipe or a device is written to, a file made anew, where a link leads if it is one.
    special = os.path.exists(output) and not os.path.isfile(output)
    path = Path(output) if special else Path(os.path.realpath(output))
    temporary = path if special else path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            temporary.write_bytes(data)
            if not special:
                os.replace(temporary, path)
        finally:
            if not special:
                temporary.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        wrong = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
        if isinstance(error, wrong) or error.errno == errno.ENAMETOOLONG:
            raise RequestError(f"{output}: cannot write: {error.strerror}") from error
        raise WriteFailed(f"{output}: cannot write: {error.strerror}; nothing was kept") from error
