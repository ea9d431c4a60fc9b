"""Hugging Face's MarianMTModel with random weights: makes it, and measures `generate`.

Run by decoding.py in the peers' environment: marian_decoding.py COMMAND ARGUMENTS_AS_JSON
"""

import json
import sys

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel
from transformers.utils.logging import disable_progress_bar

from experiments.benchmarks.rate import per_second


def save(*, shape: dict[str, int], folder: str) -> None:
    """Ids as in Marian's released models: EOS and UNK first, then pieces, and PAD beyond V."""
    torch.manual_seed(0)
    size = shape["vocabulary"]
    config = MarianConfig(
        vocab_size=size + 1,
        d_model=shape["d_model"],
        encoder_layers=shape["layers"],
        decoder_layers=shape["layers"],
        encoder_attention_heads=shape["heads"],
        decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=shape["d_ff"],
        decoder_ffn_dim=shape["d_ff"],
        activation_function="relu",
        scale_embedding=True,
        eos_token_id=0,
        pad_token_id=size,
        decoder_start_token_id=size,
        forced_eos_token_id=None,
        max_position_embeddings=max(shape["source"], shape["output"] + 1),
    )
    MarianMTModel(config).save_pretrained(folder)


def measure(
    *, shape: dict[str, int], folder: str, batches: list[int], seconds: float
) -> dict[str, float]:
    """Sentences a second for each number of rows."""
    model = MarianMTModel.from_pretrained(folder).eval()
    size = shape["vocabulary"]
    settings = GenerationConfig(
        num_beams=shape["beam"],
        do_sample=False,
        length_penalty=0.6,
        min_new_tokens=shape["output"],
        max_new_tokens=shape["output"],
        eos_token_id=0,
        pad_token_id=size,
        decoder_start_token_id=size,
    )
    rates = {}
    for rows in batches:
        source = torch.randint(2, size, (rows, shape["source"]))
        source[:, -1] = 0
        mask = torch.ones_like(source)

        def translate(source: torch.Tensor = source, mask: torch.Tensor = mask) -> int:
            found = model.generate(source, attention_mask=mask, generation_config=settings)
            # The first column is what the decoder starts from.
            assert found.shape == (len(source), shape["output"] + 1), found.shape
            return len(source)

        rates[f"batch {rows}"] = per_second(translate, seconds)
    return rates


if __name__ == "__main__":
    disable_progress_bar()
    command = {"save": save, "measure": measure}[sys.argv[1]]
    print(json.dumps(command(**json.loads(sys.argv[2]))))
