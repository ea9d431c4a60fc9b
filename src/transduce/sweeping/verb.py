"""What `sweep` does."""

import sys
from collections.abc import Sequence

from transduce.config import RequestError
from transduce.sweeping.run import run_here, submit, write_commands
from transduce.sweeping.states import state_of
from transduce.sweeping.variants import REPORT, Planned, plan
from transduce.workdir import Workdir


def sweep(
    path: str,
    workdir: str,
    *,
    vary: Sequence[Sequence[str]] = (),
    commands: bool = False,
    launcher: str = "",
    report: bool = False,
) -> None:
    """Trains the variants of the experiment file at `path` here, or does one of three others:

    with `commands` it writes what would train them to standard output, with `launcher` it hands
    them to that command, and with `report` it compares what there is of them: Markdown to
    standard output, and with CSV and a picture into the folder `report` beside the variants'.

    Raises `RequestError` before anything is done when a variant is refused, or more than one of
    the others is asked for; `VariantsFailed` and `Interrupted` as `run_here` does.
    """
    if sum((commands, bool(launcher), report)) > 1:
        raise RequestError("--print, --submit and --report exclude each other")
    variants = plan(path, vary)
    folder = workdir.rstrip("/") or workdir
    if commands:
        write_commands(path, variants, folder)
    elif launcher:
        submit(path, variants, folder, launcher=launcher)
    elif report:
        _report(variants, folder)
    else:
        run_here(path, variants, folder)


def _report(variants: Sequence[Planned], folder: str) -> None:
    # sacreBLEU and the corpora take a second to be imported, which running does without.
    from transduce.sweeping.picture import draw
    from transduce.sweeping.report import as_csv, as_markdown, make_table

    if not any(state_of(variant, folder).step for variant in variants):
        raise RequestError(f"{folder}: no variant has a checkpoint: there is nothing to report")
    table = make_table(variants, folder)
    place = Workdir.of(f"{folder}/{REPORT}").path
    text = as_markdown(table)
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "table.md").write_bytes(text.encode())
        (place / "table.csv").write_bytes(as_csv(table).encode())
        print(text, end="")
        (place / "picture.svg").write_bytes(draw(table.rows))
    except OSError as error:
        raise RequestError(f"{place}: cannot write the report: {error.strerror}") from error
    print(f"Sweep     wrote table.md, table.csv and picture.svg to {place}", file=sys.stderr)
