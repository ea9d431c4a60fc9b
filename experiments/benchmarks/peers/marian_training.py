"""Hugging Face's MarianMTModel in training.

Run by training.py and memory.py in the peers' environment, with a JSON object of what to do.
Its batches of sentences are sorted by length in pools, as its Trainer's group_by_length does.
"""

import json
import sys

import torch
from transformers import MarianConfig, MarianMTModel

from experiments.benchmarks.peers.padded import batches
from experiments.benchmarks.rate import measured

work = json.loads(sys.argv[1])
shape = work["shape"]
torch.manual_seed(0)
model = MarianMTModel(
    MarianConfig(
        vocab_size=shape["vocabulary"],
        d_model=shape["d_model"],
        encoder_layers=shape["layers"],
        decoder_layers=shape["layers"],
        encoder_attention_heads=shape["heads"],
        decoder_attention_heads=shape["heads"],
        encoder_ffn_dim=shape["d_ff"],
        decoder_ffn_dim=shape["d_ff"],
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        max_position_embeddings=512,
    )
)
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
stream = batches(work, sort=True)


def update() -> int:
    """One update; its real target tokens."""
    source, target = map(torch.from_numpy, next(stream))
    inputs = torch.cat([torch.ones_like(target[:, :1]), target[:, :-1]], dim=1)
    optimizer.zero_grad(set_to_none=True)
    logits = model(input_ids=source, attention_mask=source != 0, decoder_input_ids=inputs).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), label_smoothing=0.1, ignore_index=0
    )
    loss.backward()
    optimizer.step()
    return int((target != 0).sum())


print(json.dumps(measured(update, work["seconds"], warm=work["warm"])))
