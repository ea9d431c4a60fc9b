"""CTranslate2: converts models for it, and measures its translation.

Run by decoding.py in the peers' environment: ctranslate2_decoding.py COMMAND ARGUMENTS_AS_JSON
"""

import gzip
import json
import os
import random
import sys
from collections.abc import Callable
from types import SimpleNamespace

import ctranslate2
import sentencepiece

from experiments.benchmarks.rate import per_second


def convert_marian(*, shape: dict[str, int], folder: str, output: str) -> None:
    """What `marian_decoding.py save` wrote, by CTranslate2's own converter."""
    # Brings PyTorch and transformers, which translating does not need.
    from ctranslate2.converters import TransformersConverter
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    # The converter takes PAD, the last piece, off again; V pieces remain.
    pieces = ["</s>", "<unk>", *map(str, range(2, shape["vocabulary"])), "<pad>"]
    tokenizer = SimpleNamespace(
        eos_token="</s>",
        unk_token="<unk>",
        get_vocab=lambda: {piece: index for index, piece in enumerate(pieces)},
    )

    class Converter(TransformersConverter):
        """Random weights have no tokenizer to load; the names of the pieces do."""

        def load_tokenizer(self, *_: object, **__: object) -> SimpleNamespace:
            return tokenizer

    Converter(folder).convert(output)


def measure_forced(
    *,
    shape: dict[str, int],
    model: str,
    batches: list[int],
    seconds: float,
    compute_type: str,
    workers: int,
    threads: int,
) -> dict[str, float]:
    """Sentences a second for each number of rows; every worker has a batch of its own."""
    translator = ctranslate2.Translator(
        model, compute_type=compute_type, inter_threads=workers, intra_threads=threads
    )
    generator = random.Random(0)
    rates = {}
    for rows in batches:
        numbers = range(2, shape["vocabulary"])
        sources = [
            [*map(str, generator.choices(numbers, k=shape["source"] - 1)), "</s>"]
            for _ in range(rows * workers)
        ]

        def translate(sources: list[list[str]] = sources, rows: int = rows) -> int:
            found = translator.translate_batch(
                sources,
                max_batch_size=rows,
                beam_size=shape["beam"],
                length_penalty=0.6,
                min_decoding_length=shape["output"],
                max_decoding_length=shape["output"],
            )
            assert {len(one.hypotheses[0]) for one in found} == {shape["output"]}
            return len(sources)

        rates[f"batch {rows}"] = per_second(translate, seconds)
    return rates


def convert_ours(
    *, weights: str, vocabulary: str, heads: int, layers: list[int], output: str
) -> None:
    """A post-norm model of ours with sinusoids, its arrays in the .npz file `weights`."""
    import numpy as np
    from ctranslate2.specs import Activation, TransformerSpec

    arrays = dict(np.load(weights))
    table = arrays["table"]
    rows, width = table.shape

    def normalise(spec: object, name: str, layer: int) -> None:
        spec.gamma, spec.beta = (arrays[f"{name}.norm.{part}"][layer] for part in ("scale", "bias"))

    def project(name: str, layer: int, *kinds: str) -> np.ndarray:
        """[D, N, H] each, as one [kinds x N x H, D]."""
        kernels = [arrays[f"{name}.{kind}"][layer].reshape(width, -1) for kind in kinds]
        return np.concatenate(kernels, axis=1).T.copy()

    def mix(name: str, layer: int) -> np.ndarray:
        return arrays[f"{name}.out"][layer].reshape(-1, width).T.copy()

    spec = TransformerSpec.from_config(
        tuple(layers), heads, pre_norm=False, activation=Activation.RELU
    )
    for stack, part in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        part.position_encodings.encodings = _sinusoids(1024, width)
        for index, layer in enumerate(part.layer):
            name = f"{stack}.attention"
            layer.self_attention.linear[0].weight = project(name, index, "query", "key", "value")
            layer.self_attention.linear[1].weight = mix(name, index)
            normalise(layer.self_attention.layer_norm, f"{stack}.around_attention", index)
            if stack == "decoder":
                name = f"{stack}.cross_attention"
                layer.attention.linear[0].weight = project(name, index, "query")
                layer.attention.linear[1].weight = project(name, index, "key", "value")
                layer.attention.linear[2].weight = mix(name, index)
                normalise(layer.attention.layer_norm, f"{stack}.around_cross_attention", index)
            for linear, kind in ((layer.ffn.linear_0, "into"), (layer.ffn.linear_1, "out")):
                linear.weight = arrays[f"{stack}.feed_forward.{kind}"][index].T.copy()
                linear.bias = arrays[f"{stack}.feed_forward.{kind}_bias"][index]
            normalise(layer.ffn.layer_norm, f"{stack}.around_feed_forward", index)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table

    processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
    pieces = [processor.id_to_piece(index) for index in range(len(processor))]
    pieces += [f"(unused {index})" for index in range(len(pieces), rows)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    spec.optimize()
    os.makedirs(output)
    spec.save(output)


def _sinusoids(positions: int, width: int) -> "np.ndarray":
    """Sine and cosine interleaved, as in section 3.5 of the paper."""
    import numpy as np

    angles = np.arange(positions)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return waves.reshape(positions, width).astype(np.float32)


def measure_text(*, source: str, seconds: float, **settings: object) -> dict[str, float]:
    """Lines a second, from text to text."""
    translate, lines = _text_translator(**settings), _lines(source)
    return {"once running": per_second(lambda: len(translate(lines)), seconds)}


def translate_text(*, source: str, output: str, **settings: object) -> None:
    """The whole command: a line of `output` for each of `source`."""
    translate = _text_translator(**settings)
    with open(output, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in translate(_lines(source)))


def _text_translator(
    *,
    model: str,
    vocabulary: str,
    rows: int,
    beam: int,
    alpha: float,
    extra_length: int,
    workers: int,
    threads: int,
) -> Callable[[list[str]], list[str]]:
    translator = ctranslate2.Translator(
        model, compute_type="float32", inter_threads=workers, intra_threads=threads
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)

    def translate(lines: list[str]) -> list[str]:
        sources = [[*pieces, "</s>"] for pieces in processor.encode(lines, out_type=str)]
        found = translator.translate_batch(
            sources,
            max_batch_size=rows,
            beam_size=beam,
            length_penalty=alpha,
            max_decoding_length=max(map(len, sources)) + extra_length,
        )
        return [processor.decode(one.hypotheses[0]) for one in found]

    return translate


def _lines(path: str) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.removesuffix("\n") for line in file]


COMMANDS = {
    "convert_marian": convert_marian,
    "convert_ours": convert_ours,
    "measure_forced": measure_forced,
    "measure_text": measure_text,
    "translate_text": translate_text,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](**json.loads(sys.argv[2]))))
