"""How good the model in training is: loss on the dev split, and BLEU of its translations."""

import time
from dataclasses import asdict

import jax
from jax.sharding import Mesh, SingleDeviceSharding

from transduce.arrays import Batch
from transduce.config import Experiment, RequestError
from transduce.decoding.translator import Translation, Translator
from transduce.evaluation.bleu import quality
from transduce.model.transformer import Transformer
from transduce.parallel.mesh import place
from transduce.pipeline.batches import evaluation_batches
from transduce.pipeline.data import Data
from transduce.training.monitor import Monitor
from transduce.training.objective import Sums, objective, perplexity
from transduce.workdir import Workdir


class Assessment:
    """Evaluates a model in training on the splits of its data."""

    def __init__(self, experiment: Experiment, mesh: Mesh, workdir: Workdir, data: Data):
        """Raises `RequestError` when a sentence of dev or test is beyond the model's positions."""
        self._experiment, self._mesh = experiment, mesh
        self._workdir, self._data = workdir, data
        self._batches = {split: self._packed(split) for split in data.splits if split != "train"}
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
        """Records loss, perplexity, BLEU and chrF of `split`, and shows some translations.

        All of test is translated; of dev, training.evaluation_sentences. Returns loss and BLEU.
        """
        began = time.perf_counter()
        pairs = self._data.splits[split]
        limit = self._experiment.training.evaluation_sentences if split == "dev" else 0
        texts = [pairs[index] for index in range(min(limit or len(pairs), len(pairs)))]
        values = self._loss(model, split)
        found = self._translate(model, [source for source, _ in texts])
        translations = [translation.hypotheses[0].text for translation in found]
        for number, translation in enumerate(found, start=1):
            for note in translation.notes:
                monitor.say(f"  {split} line {number}: {note}")
        path = self._workdir.translations(split, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\n" for line in translations).encode())
        scores = quality(translations, [[target for _, target in texts]])
        seconds = time.perf_counter() - began
        monitor.record(split, step, **values, **asdict(scores), seconds=round(seconds, 3))
        samples = min(self._experiment.training.samples, len(texts))
        for index in (sample * len(texts) // samples for sample in range(samples)):
            source, target = texts[index]
            monitor.say(f"  source       {source}\n  reference    {target}")
            monitor.say(f"  translation  {translations[index]}\n")
        monitor.say(
            f"{split:<9} step {step:,}: loss {values['loss']:.3f}, perplexity "
            f"{values['perplexity']:.2f}, BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF "
            f"{scores.chrf:.2f}, {len(texts):,} sentences, {seconds:.1f} s"
        )
        return {"loss": values["loss"], "bleu": scores.bleu}

    def _loss(self, model: Transformer, split: str) -> dict[str, float]:
        """Loss (the objective, smoothing included) and perplexity (without) over all pairs."""
        with jax.set_mesh(self._mesh):
            parts = [self._sums(model, place(self._mesh, batch)) for batch in self._batches[split]]
        total = jax.tree.map(lambda *values: sum(float(value) for value in values), *parts)
        return {
            "loss": total.loss / total.tokens,
            "perplexity": perplexity(total.log_loss, total.tokens),
            "tokens": total.tokens,
        }

    def _translate(self, model: Transformer, sources: list[str]) -> list[Translation]:
        """The translations that `transduce translate` would make."""
        here = jax.device_put(model, SingleDeviceSharding(jax.local_devices()[0]))
        translator = Translator(here, self._data.vocabulary, self._experiment.search)
        return list(translator.translate(sources))
