"""How good the model in training is: loss on the dev split, and BLEU of its translations."""

import math
import time
from dataclasses import asdict

import jax
from jax.sharding import Mesh, SingleDeviceSharding

from transduce.arrays import Batch
from transduce.checkpoints import Workdir
from transduce.config import Experiment
from transduce.decoding.translator import Translator
from transduce.evaluation.bleu import quality
from transduce.model.transformer import Transformer
from transduce.parallel.mesh import place
from transduce.pipeline.batches import evaluation_batches
from transduce.pipeline.data import Data
from transduce.pipeline.selection import Pairs
from transduce.training.monitor import Monitor
from transduce.training.objective import Sums, objective


class Assessment:
    """Evaluates a model in training on the splits of its data."""

    def __init__(
        self, experiment: Experiment, mesh: Mesh, workdir: Workdir, monitor: Monitor, data: Data
    ):
        self._experiment, self._mesh = experiment, mesh
        self._workdir, self._monitor, self._data = workdir, monitor, data
        smoothing = experiment.training.label_smoothing

        @jax.jit
        def sums(model: Transformer, batch: Batch) -> Sums:
            return objective(model, batch, smoothing=smoothing, key=None)

        self._sums = sums

    def __call__(self, split: str, model: Transformer, step: int) -> None:
        """Records loss, perplexity, BLEU and chrF of `split`, and shows some translations.

        All of test is translated; of dev, training.evaluation_sentences.
        """
        began = time.perf_counter()
        pairs = self._data.splits[split]
        limit = self._experiment.training.evaluation_sentences if split == "dev" else 0
        texts = [pairs[index] for index in range(min(limit or len(pairs), len(pairs)))]
        values = self._loss(model, pairs)
        translations = self._translate(model, [source for source, _ in texts])
        path = self._workdir.translations(split, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in translations))
        scores = quality(translations, [[target for _, target in texts]])
        seconds = time.perf_counter() - began
        self._monitor.record(split, step, **values, **asdict(scores), seconds=round(seconds, 3))
        for index in range(min(self._experiment.training.samples, len(texts))):
            source, target = texts[index * len(texts) // self._experiment.training.samples]
            self._monitor.say(f"  source       {source}\n  reference    {target}")
            translation = translations[index * len(texts) // self._experiment.training.samples]
            self._monitor.say(f"  translation  {translation}\n")
        self._monitor.say(
            f"{split:<9} step {step:,}: loss {values['loss']:.3f}, perplexity "
            f"{values['perplexity']:.2f}, BLEU {scores.bleu:.2f} ({scores.bleu_signature}), chrF "
            f"{scores.chrf:.2f}, {len(texts):,} sentences, {seconds:.1f} s"
        )

    def _loss(self, model: Transformer, pairs: Pairs) -> dict[str, float]:
        """Loss (the objective, smoothing included) and perplexity (without) over all pairs."""
        data = self._experiment.data
        batches = evaluation_batches(pairs, self._data.vocabulary, data, rows=data.rows)
        with jax.set_mesh(self._mesh):
            parts = [self._sums(model, place(self._mesh, batch)) for batch in batches]
        total = jax.tree.map(lambda *values: sum(float(value) for value in values), *parts)
        return {
            "loss": total.loss / total.tokens,
            "perplexity": math.exp(total.log_loss / total.tokens),
            "tokens": total.tokens,
        }

    def _translate(self, model: Transformer, sources: list[str]) -> list[str]:
        """The best translations, by the search of `transduce translate`."""
        here = jax.device_put(model, SingleDeviceSharding(jax.local_devices()[0]))
        translator = Translator(here, self._data.vocabulary, self._experiment.search)
        return [found.hypotheses[0].text for found in translator.translate(sources)]
