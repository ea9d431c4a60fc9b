"""Joey NMT's Transformer in training.

Run by training.py in an environment of its own, with a JSON object of what to do. Its batches are
those of its TokenBatchSampler, which takes sentences at random. Its dropout of attention weights
and inside feed-forward layers, which the other sides do not have, is taken out.
"""

import json
import sys
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
from joeynmt.vocabulary import Vocabulary

from experiments.benchmarks.peers.padded import batches
from experiments.benchmarks.rate import measured

UNK, PAD, BOS, EOS = range(4)
"""As its vocabulary has them; ours are PAD, BOS, EOS, UNK."""
SPECIALS = SimpleNamespace(
    unk_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    sep_token=None,
    unk_id=UNK,
    pad_id=PAD,
    bos_id=BOS,
    eos_id=EOS,
    sep_id=None,
    lang_tags=[],
)

work = json.loads(sys.argv[1])
shape = work["shape"]
torch.manual_seed(0)
vocabulary = Vocabulary([f"piece{n}" for n in range(4, shape["vocabulary"])], SPECIALS)
stack = {
    "type": "transformer",
    "num_layers": shape["layers"],
    "num_heads": shape["heads"],
    "hidden_size": shape["d_model"],
    "ff_size": shape["d_ff"],
    "dropout": 0.1,
    "layer_norm": "post",
    "embeddings": {"embedding_dim": shape["d_model"], "scale": True, "dropout": 0.1},
}
model = build_model(
    {"encoder": stack, "decoder": dict(stack), "tied_embeddings": True, "tied_softmax": True},
    src_vocab=vocabulary,
    trg_vocab=vocabulary,
)
for module in model.modules():
    if isinstance(module, MultiHeadedAttention):
        module.dropout = torch.nn.Identity()
    elif isinstance(module, PositionwiseFeedForward):
        module.pwff_layer[2] = torch.nn.Identity()
model.loss_function = ("crossentropy", 0.1)
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
stream = batches(work, sort=False)
ours_to_theirs = np.arange(shape["vocabulary"])
ours_to_theirs[:4] = PAD, BOS, EOS, UNK


def update() -> int:
    """One update, as its TrainManager does it; its real target tokens."""
    source, target = (torch.from_numpy(ours_to_theirs[side]) for side in next(stream))
    batch = Batch(
        src=source,
        src_length=(source != PAD).sum(1),
        src_prompt_mask=None,
        trg=torch.cat([torch.full_like(target[:, :1], BOS), target], dim=1),
        trg_prompt_mask=None,
        indices=torch.arange(len(source)),
        device=torch.device("cpu"),
        pad_index=PAD,
        eos_index=EOS,
    )
    batch.sort_by_src_length()
    loss = model(return_type="loss", **vars(batch))[0]
    batch.normalize(loss, "tokens").backward()
    optimizer.step()
    optimizer.zero_grad()
    return batch.ntokens


print(json.dumps(measured(update, work["seconds"], warm=work["warm"])))
