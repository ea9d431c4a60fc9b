"""Multi-head attention (section 3.2)."""

from typing import Any

import jax.numpy as jnp
from flax import nnx

from transduce.arrays import Array, Float, Int
from transduce.model.kernels import Kernel, attend
from transduce.model.positions import rotate
from transduce.model.products import product
from transduce.model.visibility import Visible
from transduce.parallel.mesh import constrain, gathered, out_sharding


class MultiHeadAttention(nnx.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    No bias in the projections. With `rotary`, queries and keys are rotated by their positions.
    """

    def __init__(
        self,
        *,
        d_model: int,
        heads: int,
        d_k: int,
        d_v: int,
        rotary: bool,
        kernel: Kernel,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.rotary, self.dtype = rotary, dtype
        self.kernel: Kernel = kernel
        into = nnx.initializers.variance_scaling(
            1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2)
        )
        out = nnx.initializers.variance_scaling(
            1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2
        )

        def projection(width: int) -> nnx.Param:
            kernel = into(rngs.params(), (d_model, heads, width), param_dtype)
            return nnx.Param(kernel, axes=("embed", "heads", None))

        self.query = projection(d_k)
        self.key = projection(d_k)
        self.value = projection(d_v)
        self.out = nnx.Param(
            out(rngs.params(), (heads, d_v, d_model), param_dtype), axes=("heads", None, "embed")
        )

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: Float[Array, "B S D"],
        visible: Visible,
        *,
        positions: Int[Array, "B T"],
    ) -> Float[Array, "B T D"]:
        """Self-attention when `memory` is `x`; rotary positions only make sense there."""
        queries = self.queries(x, positions=positions)
        keys, values = self.keys_values(memory, positions=positions)
        return self.mix(attend(queries, keys, values, visible, kernel=self.kernel))

    def queries(
        self, x: Float[Array, "B T D"], *, positions: Int[Array, "B T"]
    ) -> Float[Array, "B T N H"]:
        return self._rotated(self._project(x, self.query), positions)

    def keys_values(
        self, memory: Float[Array, "B S D"], *, positions: Int[Array, "B S"]
    ) -> tuple[Float[Array, "B S N H"], Float[Array, "B S N J"]]:
        keys = self._rotated(self._project(memory, self.key), positions)
        return keys, self._project(memory, self.value)

    def first_head(
        self, x: Float[Array, "B T D"], memory: Float[Array, "B S D"]
    ) -> tuple[Float[Array, "B T H"], Float[Array, "B S H"]]:
        """Queries and keys of one head alone, without rotary positions."""

        def of(x: Array, kernel: nnx.Param) -> Array:
            # Heads may be divided over devices: every device takes the first.
            whole = constrain(gathered(kernel, self.dtype), None, None, None)
            return jnp.einsum("btd,dh->bth", x, whole[:, 0])

        return of(x, self.query), of(memory, self.key)

    def mix(self, heads: Float[Array, "B T N J"]) -> Float[Array, "B T D"]:
        """The heads side by side, times W^O."""
        # Contracted letters are taken in alphabetical order: any other than that of the dimensions
        # has both operands transposed first.
        layout = out_sharding("batch", "positions", None)
        return product("btnv,nvd->btd", heads, gathered(self.out, self.dtype), layout)

    def _project(self, x: Array, kernel: nnx.Param) -> Array:
        return product("btd,dnh->btnh", x, gathered(kernel, self.dtype))

    def _rotated(self, x: Array, positions: Array) -> Array:
        return rotate(x, positions) if self.rotary else x
