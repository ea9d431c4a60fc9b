"""The flags of each verb of the command line."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from transduce.config import Experiment, SearchConfig


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """Train a model, or go on training it."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Python file that defines experiment() -> Experiment."""
    workdir: str
    """Folder for all that the run makes; a run that is there already is continued."""
    profile: bool = False
    """Write a profiler trace of three updates to WORKDIR/profile."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]


@dataclass(frozen=True, kw_only=True)
class TrainedArguments:
    """Which parameters to decode with."""

    workdir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORKDIR")]
    """What transduce train made."""
    ensemble: tuple[str, ...] = ()
    """More workdirs, of the same vocabulary: the models' mean probability decides."""
    step: int | None = None
    """The checkpoint to use; the newest if not given."""
    average: int = 1
    """Use the mean of the newest K checkpoints."""
    best: bool = False
    """Use the parameters that did best on dev."""
    mask_head: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A head that the model is to do without, such as encoder.5.3 (encoder, decoder or cross; layer
    and head counted from 0), or encoder.5 for all of a layer; may be given several times."""


@dataclass(frozen=True, kw_only=True)
class TranslateArguments(TrainedArguments):
    """Translate text, one sentence a line."""

    input: str = "-"
    """File to read, plain or gzip; - is standard input."""
    output: str = "-"
    """File to write; - is standard output."""
    format: Literal["text", "jsonl"] = "text"
    """A line of text for each line read, or a JSON object."""
    n_best: int = 1
    """Hypotheses written of each line, best first: in text as Moses writes them, NUMBER ||| TEXT
    ||| LOG-PROBABILITY ||| SCORE with numbers from 0; in an object as its alternatives."""
    scores: bool = False
    """Begin each line of text with its log-probability and a tab."""
    alignments: bool = False
    """Write the attention of each token to the tokens of its source, in jsonl."""
    prefix: str | None = None
    """File with what each output begins with; an empty line leaves an output free."""
    batch_size: int = 4096
    """Lines read and searched at a time; what becomes of a line does not depend on it."""
    search: SearchConfig


@dataclass(frozen=True, kw_only=True)
class ScoreArguments(TrainedArguments):
    """Write the log-probability of each target line given its source line."""

    source: str
    target: str
    format: Literal["text", "jsonl"] = "text"
    """Of the target; of jsonl, which translate writes, the tokens are scored as they are."""


@dataclass(frozen=True, kw_only=True)
class EvaluateArguments(TrainedArguments):
    """Translate a source file and score it against references, as JSON."""

    source: str
    """Sentences; of a parser also the file of reference trees itself, whose words are parsed."""
    reference: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]
    """One or more files, each with a line for each source line; of a parser one file of trees."""
    search: SearchConfig


@dataclass(frozen=True, kw_only=True)
class CompareArguments:
    """Compare systems' translations by paired bootstrap resampling, as JSON."""

    reference: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]
    """One or more files, each with a line for each sentence, plain or gzip; - is standard input."""
    system: Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
    """A system's translations; given twice or more, the baseline first."""
    samples: int = 1000
    """Bootstrap samples."""
    seed: int = 12345
    """Decides which sentences are in each sample."""


@dataclass(frozen=True, kw_only=True)
class BracketsArguments:
    """Score trees against gold trees as EVALB does, one tree a line."""

    gold: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GOLD")]
    """Gold trees, plain or gzip."""
    test: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TEST")]
    """Trees to score; an empty line where there is none."""
    parameters: str | None = None
    """EVALB parameter file; without it the usual ones for Penn-style English trees."""
    without_outer_s: bool = False
    """Compare trees without an S around one constituent and nothing else, as GENIA's have."""


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Train variants of an experiment, and compare them."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Python file that defines experiment() -> Experiment, and sweep(), which yields variants."""
    workdir: str
    """Folder of the sweep: each variant has a workdir in it."""
    vary: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    """A field and its values; given twice or more, every combination."""
    print: bool = False
    """Write the command that trains each variant which is not done, and train nothing."""
    submit: str = ""
    """Run this command for each variant that is not done, with train's arguments after its own."""
    report: bool = False
    """Compare what there is: Markdown to standard output, and CSV and a picture to
    WORKDIR/report."""


@dataclass(frozen=True, kw_only=True)
class AttendArguments(TrainedArguments):
    """Draw what the model attends to, as a page or a picture."""

    source: str
    """The sentence."""
    target: str | None = None
    """Its translation; without it the model's own, by its search. To a parser, a tree."""
    output: str
    """File to write; - is standard output."""
    format: Literal["html", "png", "svg"] | None = None
    """A page to look at, or a picture for a paper (needs matplotlib, the extra view); without it
    what OUTPUT ends with."""
    show: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A layer or a head, such as encoder.4 or encoder.4.2, for a panel of a picture, or for a page
    to open on; may be given several times. Without it cross-attention in the last layer but one."""
    search: SearchConfig


@dataclass(frozen=True, kw_only=True)
class PlanArguments:
    """Say whether a run fits on other machines, how long it takes and what it costs."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Python file that defines experiment() -> Experiment."""
    on: Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
    """A machine, given once or more: tpu-v5e:4x4, tpu-v5p:2x2x4, tpu-v6e:16x16, h100:8, h200:8,
    cpu."""
    search_mesh: bool = False
    """Rank every mesh of the machine by arithmetic, and compile the best four."""
    price: float | None = None
    """Of a chip for an hour."""
    format: Literal["table", "json"] = "table"
    """JSON is one list, written at the end."""
    experiment: Annotated[Experiment, tyro.conf.arg(name="")]
