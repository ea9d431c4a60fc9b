"""Hugging Face's MarianMTModel in training, on one batch of random ids.

Run by training.py in the peers' environment: marian_training.py SHAPE_AS_JSON SECONDS
"""

import json
import sys
import time

import torch
from transformers import MarianConfig, MarianMTModel

shape, seconds = json.loads(sys.argv[1]), float(sys.argv[2])
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
        max_position_embeddings=shape["length"],
    )
)
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
size = (shape["rows"], shape["length"])
source, target = (torch.randint(4, shape["vocabulary"], size) for _ in range(2))
inputs = torch.cat([torch.ones_like(target[:, :1]), target[:, :-1]], dim=1)


def update() -> None:
    optimizer.zero_grad(set_to_none=True)
    logits = model(input_ids=source, decoder_input_ids=inputs).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), label_smoothing=0.1
    )
    loss.backward()
    optimizer.step()


def measure(seconds: float) -> float:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        update()
        steps += 1
    return steps * shape["rows"] * shape["length"] / (time.perf_counter() - began)


measure(seconds / 2)  # until its memory is there
rate = measure(seconds)
print(json.dumps({"tokens_per_second": rate}))
