"""The Transformer of section 3."""

from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from transduce.arrays import Array, Batch, Float, Int, Tokens
from transduce.config import ModelConfig, RequestError
from transduce.model.layers import DecoderLayer, EncoderLayer, Key, dropout, layer_norm
from transduce.model.positions import sinusoids
from transduce.model.visibility import Visible, among
from transduce.parallel.mesh import constrain, gathered, out_sharding

# Modules are plain pytrees here: jax's own transformations apply to them directly.
nnx.set_graph_mode(False)

type Remat = Literal["none", "layer", "dots"]
"""What a layer makes again in the backward pass instead of keeping it: nothing; all but its input;
all but its input and the products with its matrices."""

_KEPT: dict[Remat, Any] = {
    "layer": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class Transformer(nnx.Module):
    """Encoder and decoder stacks over one table of embeddings.

    Source embeddings, target embeddings and the final linear layer share the table
    (section 3.4); layers of a stack are kept stacked, each parameter with L in front.
    """

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.dtype = jnp.dtype(config.dtype)
        if self.dtype == jnp.float64 and not jax.config.read("jax_enable_x64"):
            raise RequestError("model.dtype float64 needs JAX_ENABLE_X64=1 in the environment")
        param_dtype = jnp.promote_types(self.dtype, jnp.float32)
        shape = (config.vocabulary_size, config.d_model)
        normal = nnx.initializers.normal(config.d_model**-0.5)
        self.table = nnx.Param(
            normal(rngs.params(), shape, param_dtype), axes=("vocabulary", "embed")
        )
        if config.positions == "learned":
            shape = (config.learned_positions, config.d_model)
            self.position_table = nnx.Param(
                normal(rngs.params(), shape, param_dtype), axes=(None, "embed")
            )
        self.encoder = _stack(EncoderLayer, config, config.encoder_layers, param_dtype, rngs)
        self.decoder = _stack(DecoderLayer, config, config.decoder_layers, param_dtype, rngs)
        if config.norm == "pre":
            # The last sum of a pre-norm stack has no normalisation after it but this one.
            self.encoder_norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)
            self.decoder_norm = layer_norm(config=config, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, batch: Batch, *, key: Key = None) -> Float[Array, "B T V"]:
        """Logits of every target piece given those before it (teacher forcing)."""
        return self.logits(self.hidden(batch, key=key))

    def hidden(
        self, batch: Batch, *, key: Key = None, remat: Remat = "none"
    ) -> Float[Array, "B T D"]:
        """The decoder's output, from which `logits` predicts each target piece."""
        return self.hidden_and_missed(batch, key=key, remat=remat)[0]

    def hidden_and_missed(
        self, batch: Batch, *, key: Key = None, remat: Remat = "none", guided: bool = False
    ) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """`hidden`; and, if `guided`, what the attention of its first heads misses.

        That is `attention_missed` of the first head of cross-attention, the mean over layers; the
        batch must have words.
        """
        keys = (None, None) if key is None else jax.random.split(key)
        memory = self.encode(batch.source, key=keys[0], remat=remat)
        # Shifted, an id may come to another device: each takes all of its rows and keeps its part.
        target = replace(batch.target, ids=constrain(batch.target.ids, "batch", None))
        inputs = replace(batch, target=target).decoder_inputs()
        return self.decode(
            inputs,
            memory,
            source=batch.source,
            key=keys[1],
            remat=remat,
            guided=guided,
        )

    def encode(
        self, source: Tokens, *, key: Key = None, remat: Remat = "none"
    ) -> Float[Array, "B S D"]:
        """The encoder stack over embedded source pieces."""
        visible = among(source)
        keys = _keys(key, self.config.encoder_layers)
        x = self.embed(source.ids, source.positions, keys[1])

        def layer(x: Array, parts: Any) -> tuple[Array, None]:
            module, key = parts
            return module(x, visible=visible, positions=source.positions, key=key), None

        x, _ = self._scan(layer, x, (self.encoder, keys[0]), remat)
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def decode(
        self,
        target: Tokens,
        memory: Float[Array, "B S D"],
        *,
        source: Tokens,
        key: Key = None,
        remat: Remat = "none",
        guided: bool = False,
    ) -> tuple[Float[Array, "B T D"], Float[Array, ""]]:
        """The decoder stack over its inputs (BOS first); see `hidden_and_missed`."""
        visible = among(target, causal=True)
        memory_visible = Visible(queries=target.segments, keys=source.segments)
        words = None
        if guided:
            assert target.words is not None
            assert source.words is not None
            words = target.words, source.words
        keys = _keys(key, self.config.decoder_layers)
        x = self.embed(target.ids, target.positions, keys[1])

        def layer(x: Array, parts: Any) -> tuple[Array, Array]:
            module, key = parts
            return module(
                x,
                memory,
                visible=visible,
                memory_visible=memory_visible,
                positions=target.positions,
                key=key,
                words=words,
            )

        x, missed = self._scan(layer, x, (self.decoder, keys[0]), remat)
        return self.decoder_norm(x) if self.config.norm == "pre" else x, jnp.mean(missed)

    def logits(self, hidden: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """The final linear layer, whose matrix is the table; float32 or wider."""
        wide = jnp.promote_types(self.dtype, jnp.float32)
        return jnp.einsum(
            "btd,vd->btv", hidden, gathered(self.table, self.dtype), preferred_element_type=wide
        )

    def embed(
        self, ids: Int[Array, "B T"], positions: Int[Array, "B T"], key: Key = None
    ) -> Float[Array, "B T D"]:
        """Embeddings times sqrt(D), plus positions, then dropout (sections 3.4, 3.5, 5.4)."""
        layout = out_sharding("batch", "positions", None)
        config = self.config
        table = gathered(self.table, self.dtype)
        x = table.at[ids].get(out_sharding=layout) * jnp.asarray(config.d_model**0.5, self.dtype)
        if config.positions == "sinusoidal":
            wide = jnp.promote_types(self.dtype, jnp.float32)
            x = x + sinusoids(positions, config.d_model, wide).astype(self.dtype)
        elif config.positions == "learned":
            rows = gathered(self.position_table, self.dtype)
            x = x + rows.at[positions].get(out_sharding=layout)
        return dropout(x, config.dropout, key)

    def _scan(self, layer: Any, x: Array, parts: Any, remat: Remat) -> tuple[Array, Any]:
        unroll = self.config.unroll
        if remat != "none":
            # Where a loop stands between them, XLA cannot take what is made again from before.
            layer = jax.checkpoint(layer, policy=_KEPT[remat], prevent_cse=unroll != 1)
        return lax.scan(layer, x, parts, unroll=unroll or True)


def _stack(kind: type, config: ModelConfig, layers: int, param_dtype: Any, rngs: nnx.Rngs) -> Any:
    def make(key: Array) -> Any:
        return kind(config, param_dtype=param_dtype, rngs=nnx.Rngs(key))

    # A loop, not vmap, which takes far longer to compile.
    return lax.map(make, jax.random.split(rngs.params(), layers))


def _keys(key: Key, layers: int) -> tuple[Array | None, Key]:
    """Keys of the layers, stacked, and of the embeddings."""
    if key is None:
        return None, None
    layer_key, embedding_key = jax.random.split(key)
    return jax.random.split(layer_key, layers), embedding_key


def with_dtype(model: Transformer, dtype: str) -> Transformer:
    """The same model, computing in `dtype` and its matrices stored in it.

    Gains and biases stay as they are, as do norms, the softmax and the logits: float32 or wider.
    """
    config = replace(model.config, dtype=dtype)
    like = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))

    def cast(path: Any, leaf: Array) -> Array:
        stacked = jax.tree_util.keystr(path[:1], simple=True) in ("encoder", "decoder")
        return leaf.astype(dtype) if leaf.ndim - stacked > 1 else leaf

    leaves = jax.tree.leaves(jax.tree_util.tree_map_with_path(cast, model))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def parameter_count(config: ModelConfig) -> int:
    """Trainable parameters of the model that `config` describes."""
    model = jax.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0)))
    return sum(leaf.size for leaf in jax.tree.leaves(model))
