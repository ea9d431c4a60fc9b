"""Are two systems really different? Paired bootstrap resampling (Koehn 2004) by sacreBLEU."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from transduce.config_checks import require
from transduce.text.lines import read_lines


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A corpus score and what the bootstrap samples say about it."""

    score: float
    mean: float
    """Of the scores of the samples."""
    half_width: float
    """Half of the distance between the 2.5th and 97.5th percentiles of those scores."""
    p_value: float | None
    """How likely a difference to the baseline larger than the one seen is by chance; None: this
    is the baseline. It counts one tail, so that it is about half of a two-sided test's."""


@dataclass(frozen=True, kw_only=True)
class System:
    """One system's estimates."""

    system: str
    """The path of its translations, as given."""
    bleu: Estimate
    chrf: Estimate


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Systems in the order in which they were given, the baseline first."""

    sentences: int
    samples: int
    seed: int
    bleu_signature: str
    chrf_signature: str
    systems: tuple[System, ...]


def compare_files(
    *, references: Sequence[str], systems: Sequence[str], samples: int, seed: int
) -> Comparison:
    """Each system's BLEU and chrF, and how they differ from those of the first, the baseline.

    All are paths of files with one line a sentence, plain or gzip; one of them may be "-",
    standard input. Every one of the `samples` draws as many sentences as there are, with
    replacement, the same ones for all systems and both metrics; `seed` alone decides which.

    Raises `RequestError` when there is no reference or are fewer than two systems, "-" comes
    twice, `samples` or `seed` is below 1, a file cannot be read, files differ in length, or they
    are empty.
    """
    _check_request(references, systems, samples=samples, seed=seed)
    # Each file once: a system that is compared with itself may come through a pipe.
    texts = {path: list(read_lines(path)) for path in dict.fromkeys([*references, *systems])}
    first = references[0]
    sentences = len(texts[first])
    for path, lines in texts.items():
        require(
            len(lines) == sentences,
            f"{_name(path)} has {len(lines)} lines and {_name(first)} has {sentences}: "
            "each sentence needs one line in every file",
        )
    require(sentences > 0, f"{_name(first)} is empty: there must be at least one line to score")
    with _sacrebleu_seed(seed):
        signatures, results = PairedTest(
            [(path, texts[path]) for path in systems],
            {"BLEU": BLEU(), "chrF2": CHRF()},
            [texts[path] for path in references],
            test_type="bs",
            n_samples=samples,
        )()
    return Comparison(
        sentences=sentences,
        samples=samples,
        seed=seed,
        bleu_signature=str(signatures["BLEU"]),
        chrf_signature=str(signatures["chrF2"]),
        systems=tuple(
            System(system=path, bleu=bleu, chrf=chrf)
            for path, bleu, chrf in zip(
                systems, _estimates(results["BLEU"]), _estimates(results["chrF2"]), strict=True
            )
        ),
    )


def _check_request(
    references: Sequence[str], systems: Sequence[str], *, samples: int, seed: int
) -> None:
    require(len(references) > 0, "--reference must name at least one file")
    require(
        len(systems) > 1,
        f"at least two systems are needed, the baseline first; --system names {len(systems)}",
    )
    require(
        [*references, *systems].count("-") < 2,
        "- may be given once: standard input can be only one of the files",
    )
    require(samples > 0, f"--samples must be positive, not {samples}")
    # sacreBLEU would take 0 for no seed at all.
    require(seed > 0, f"--seed must be positive, not {seed}")


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacreBLEU takes its seed from the environment and from nowhere else."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def _estimates(results: Sequence[str | Result]) -> Iterator[Estimate]:
    """One metric's results, the baseline's first.

    sacreBLEU counts the samples whose difference is larger than the one seen, which is none of
    them for a system against itself, and so calls that significant, p = 1 / (samples + 1). A
    difference of 0 is no difference: p = 1.
    """
    baseline = results[0]
    for result in results:
        # sacreBLEU's annotations are wider than what the bootstrap returns.
        assert isinstance(baseline, Result)
        assert isinstance(result, Result)
        assert result.mean is not None
        assert result.ci is not None
        equal = result is not baseline and result.score == baseline.score
        yield Estimate(
            score=float(result.score),
            mean=float(result.mean),
            half_width=float(result.ci),
            p_value=1.0 if equal else result.p_value,
        )
