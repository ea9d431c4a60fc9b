"""How good the model in training is: loss on dev, and BLEU of its translations or F1 of trees."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from transduce.arrays import Batch
from transduce.config import Experiment, RequestError
from transduce.decoding.translator import Translator
from transduce.evaluation.bleu import Quality, quality
from transduce.evaluation.parses import ParseQuality, parse_quality
from transduce.model.transformer import Transformer
from transduce.parallel import hosts
from transduce.parallel.mesh import place
from transduce.pipeline.batches import evaluation_batches
from transduce.pipeline.data import Data
from transduce.text.treebank import words_of
from transduce.text.trees_as_text import delinearize
from transduce.training.agreement import Agreement
from transduce.training.interruption import BrokenOff, Interruption
from transduce.training.monitor import Monitor
from transduce.training.objective import Sums, objective, perplexity
from transduce.workdir import Workdir

type _Translated = tuple[str, tuple[str, ...]]
"""A translation, and the notes on it."""


class Assessment:
    """Evaluates a model in training on the splits of its data."""

    def __init__(
        self,
        experiment: Experiment,
        mesh: Mesh,
        workdir: Workdir,
        data: Data,
        interruption: Interruption,
    ):
        """Raises `RequestError` when a sentence of dev or test is beyond the model's positions."""
        self._experiment, self._mesh = experiment, mesh
        self._workdir, self._data = workdir, data
        self._interruption = interruption
        self._measure = "f1" if experiment.data.is_of_trees else "bleu"
        self._batches = {split: self._packed(split) for split in data.splits if split != "train"}
        self._compiled: dict[str, Callable[[Transformer, Batch], Sums]] = {}
        smoothing = experiment.training.label_smoothing
        chunks = experiment.training.loss_chunks

        @jax.jit
        def sums(model: Transformer, batch: Batch) -> Sums:
            return objective(model, batch, smoothing=smoothing, chunks=chunks, key=None)

        self._sums = sums

    def _packed(self, split: str) -> list[Batch]:
        """The split's pairs in batches as large as a micro-batch of training."""
        data, model = self._experiment.data, self._experiment.model
        batches = evaluation_batches(
            self._data.splits[split],
            self._data.vocabulary,
            data,
            rows=data.rows // self._experiment.training.accumulation,
            multiple=self._mesh.shape["data"] * self._mesh.shape["fsdp"],
        )
        packed = list(batches)
        longest = 1 + max(
            int(side.positions.max()) for batch in packed for side in (batch.source, batch.target)
        )
        if model.positions == "learned" and longest > model.learned_positions:
            raise RequestError(
                f"a sentence of {split} has {longest} tokens, more than model.learned_positions "
                f"({model.learned_positions})"
            )
        return packed

    def __call__(
        self, monitor: Monitor, split: str, model: Transformer, step: int
    ) -> dict[str, float]:
        """Records loss, perplexity and what `quality` finds of `split`; shows some translations.

        That is what `parse_quality` finds where they are trees. All of test is translated; of
        dev, training.evaluation_sentences. Returns loss and BLEU, or loss and F1.
        Raises `BrokenOff` when a signal has come, to whichever process; then nothing is recorded.
        """
        began = time.perf_counter()
        pairs = self._data.splits[split]
        limit = self._experiment.training.evaluation_sentences if split == "dev" else 0
        texts = [pairs[index] for index in range(min(limit or len(pairs), len(pairs)))]
        loss = self._loss(model, split)
        found = self._translate(model, [source for source, _ in texts])
        result = found
        if isinstance(found, list):
            result = self._record(monitor, split, step, loss, texts, found, began=began)
        result = json.loads(hosts.from_first(json.dumps(result).encode()))
        if isinstance(result, int):
            raise BrokenOff(result)
        return result

    def _record(
        self,
        monitor: Monitor,
        split: str,
        step: int,
        loss: dict[str, float],
        texts: Sequence[tuple[str, str]],
        found: Sequence[_Translated],
        *,
        began: float,
    ) -> dict[str, float]:
        """Writes what was found out; returns loss and BLEU or F1."""
        translations = [text for text, _ in found]
        for number, (_, notes) in enumerate(found, start=1):
            for note in notes:
                monitor.say(f"  {split} line {number}: {note}")
        path = self._workdir.translations(split, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\n" for line in translations).encode())
        scores = self._quality(translations, texts)
        seconds = time.perf_counter() - began
        fields = asdict(scores)
        repairs = {f"repairs_{name}": count for name, count in fields.pop("repairs", {}).items()}
        monitor.record(split, step, **loss, **fields, **repairs, seconds=round(seconds, 3))
        samples = min(self._experiment.training.samples, len(texts))
        for index in (sample * len(texts) // samples for sample in range(samples)):
            source, target = texts[index]
            monitor.say(f"  source       {source}\n  reference    {target}")
            monitor.say(f"  translation  {translations[index]}\n")
        monitor.say(
            f"{split:<9} step {step:,}: loss {loss['loss']:.3f}, perplexity "
            f"{loss['perplexity']:.2f}, {scores}, {len(texts):,} sentences, {seconds:.1f} s"
        )
        watched = scores.bleu if isinstance(scores, Quality) else scores.over_all
        return {"loss": loss["loss"], self._measure: watched}

    def _quality(
        self, translations: Sequence[str], texts: Sequence[tuple[str, str]]
    ) -> Quality | ParseQuality:
        if self._measure == "bleu":
            return quality(translations, [[target for _, target in texts]])
        return parse_quality(
            translations,
            [source for source, _ in texts],
            [delinearize(words_of(target), words_of(source)) for source, target in texts],
            known=self._data.vocabulary.symbols,
        )

    def _loss(self, model: Transformer, split: str) -> dict[str, float]:
        """Loss (the objective, smoothing included) and perplexity (without) over all pairs."""
        parts, agree = [], Agreement()
        with jax.set_mesh(self._mesh):
            for packed in self._batches[split]:
                batch = place(self._mesh, packed)
                if split not in self._compiled:
                    self._compiled[split] = self._sums.lower(model, batch).compile()
                    hosts.barrier("what gives the loss is compiled")
                parts.append(self._compiled[split](model, batch))
                # As in training, no more than one is prepared while another is under way.
                jax.block_until_ready(parts[:-1])
                (heard,) = agree(self._interruption.asked or 0)
                if heard:
                    raise BrokenOff(heard)
        total = jax.tree.map(lambda *values: sum(float(value) for value in values), *parts)
        return {
            "loss": total.loss / total.tokens,
            "perplexity": perplexity(total.log_loss, total.tokens),
            "tokens": total.tokens,
        }

    def _translate(
        self, model: Transformer, sources: Sequence[str]
    ) -> list[_Translated] | int | None:
        """The translations that `transduce translate` would make, each process making its share.

        At the first process; at the others None. A number is that of the signal that came.
        """
        whole: Any = jax.device_put(model, NamedSharding(self._mesh, P()))
        here = jax.tree.map(lambda leaf: leaf.addressable_data(0), whole)
        index, count = hosts.process()
        share = range(index, len(sources), count)
        made: list[_Translated] = []
        with self._interruption.breaking_off():
            if not self._interruption.asked:
                translator = Translator((here,), self._data.vocabulary, self._experiment.search)
                found = translator.translate(
                    [sources[place] for place in share], numbers=[1 + place for place in share]
                )
                made = [(each.hypotheses[0].text, each.notes) for each in found]
        parts = hosts.gather_bytes(json.dumps(self._interruption.asked or made).encode())
        if parts is None:
            return None
        shares = [json.loads(part) for part in parts]
        if heard := [each for each in shares if isinstance(each, int)]:
            return max(heard)
        return [shares[place % count][place // count] for place in range(len(sources))]
