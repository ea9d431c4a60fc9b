"""The Transformer of "Attention Is All You Need" in numpy, written from the paper.

One sentence pair at a time, one head and one query at a time. A query is given only the keys it
may see, so there are no masks, no padding and no packing here.

Every operation is analytic, and numpy's are the same on complex numbers: the imaginary part of
loss(parameters + i h direction) / h is the derivative along `direction` without any cancellation,
so h may be 1e-30 (complex-step differentiation).

`parameters` maps names to arrays. Names and layouts are those of the model under test (the layers
of a stack in front, heads apart), so that gradients can be compared number by number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

type Parameters = Mapping[str, np.ndarray]

BOS = 1


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - np.real(scores).max())
    return exponentials / exponentials.sum()


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Ba et al. 2016, with 1e-6 added to the variance."""
    width = x.shape[-1]
    mean = x.sum(-1, keepdims=True) / width
    variance = ((x - mean) ** 2).sum(-1, keepdims=True) / width
    return (x - mean) / np.sqrt(variance + 1e-6) * gain + bias


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(np.real(x) > 0, x, 0)


def sinusoid(position: int, width: int) -> np.ndarray:
    """Section 3.5."""
    encoding = np.zeros(width)
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        encoding[2 * i] = np.sin(angle)
        encoding[2 * i + 1] = np.cos(angle)
    return encoding


def rotated(x: np.ndarray) -> np.ndarray:
    """Su et al. 2021, equation 15: row m times block-diagonal rotations by m 10000^(-2i/d)."""
    length, width = x.shape
    rows = []
    for m in range(length):
        blocks = np.zeros((width, width))
        for i in range(width // 2):
            angle = m * 10000 ** (-2 * i / width)
            blocks[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
                [np.cos(angle), -np.sin(angle)],
                [np.sin(angle), np.cos(angle)],
            ]
        rows.append(blocks @ x[m])
    return np.stack(rows)


def smoothed_loss(logits: np.ndarray, labels: Sequence[int], epsilon: float) -> np.ndarray:
    """Sum over positions of the cross-entropy with (1 - epsilon) one_hot + epsilon / V."""
    total = np.zeros((), logits.dtype)
    for row, label in zip(logits, labels, strict=True):
        wanted = np.full(len(row), epsilon / len(row))
        wanted[label] += 1 - epsilon
        total = total - (wanted * np.log(softmax(row))).sum()
    return total


def complex_step(
    function: Callable[[Parameters], np.ndarray], parameters: Parameters, name: str, direction
) -> float:
    """Derivative of `function` when parameter `name` moves along `direction`."""
    moved = {**parameters, name: parameters[name] + 1e-30j * direction}
    return float(np.imag(function(moved)) / 1e-30)


def _undropped(x: np.ndarray) -> np.ndarray:
    return x


@dataclass(frozen=True)
class Reference:
    """Parameters and the choices that their shapes do not show.

    `drop` stands for Dropout of section 5.4 and is called once at each place that has it: on the
    source's embeddings plus positions, on the encoder's sub-layer outputs in order, then the
    same for target and decoder.
    """

    parameters: Parameters
    positions: str
    norm: str
    drop: Callable[[np.ndarray], np.ndarray] = _undropped

    def logits(self, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """[T, V] of each piece of `target` given those before it."""
        memory = self._encoder(source)
        hidden = self._decoder([BOS, *target[:-1]], memory)
        return hidden @ self.parameters["table"].T  # section 3.4: the same matrix

    def loss(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], epsilon: float
    ) -> np.ndarray:
        losses = [
            smoothed_loss(self.logits(source, target), target, epsilon) for source, target in pairs
        ]
        return np.sum(losses)

    def _embed(self, ids: Sequence[int]) -> np.ndarray:
        table = self.parameters["table"]
        width = table.shape[1]
        x = np.stack([table[piece] * np.sqrt(width) for piece in ids])
        if self.positions == "sinusoidal":
            x = x + np.stack([sinusoid(position, width) for position in range(len(ids))])
        if self.positions == "learned":
            x = x + self.parameters["position_table"][: len(ids)]
        return self.drop(x)

    def _encoder(self, source: Sequence[int]) -> np.ndarray:
        x = self._embed(source)
        for layer in range(len(self.parameters["encoder.attention.query"])):
            place = Place("encoder", layer)
            x = self._sublayer(x, place, "attention", lambda y, p=place: self._self(y, p))
            x = self._sublayer(x, place, "feed_forward", lambda y, p=place: self._ff(y, p))
        return self._last_norm(x, "encoder")

    def _decoder(self, inputs: Sequence[int], memory: np.ndarray) -> np.ndarray:
        x = self._embed(inputs)
        for layer in range(len(self.parameters["decoder.attention.query"])):
            place = Place("decoder", layer)
            x = self._sublayer(
                x, place, "attention", lambda y, p=place: self._self(y, p, masked=True)
            )
            x = self._sublayer(
                x, place, "cross_attention", lambda y, p=place: self._cross(y, memory, p)
            )
            x = self._sublayer(x, place, "feed_forward", lambda y, p=place: self._ff(y, p))
        return self._last_norm(x, "decoder")

    def _sublayer(
        self,
        x: np.ndarray,
        place: "Place",
        name: str,
        function: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x)))."""
        gain = self._at(place, f"around_{name}.norm.scale")
        bias = self._at(place, f"around_{name}.norm.bias")
        if self.norm == "pre":
            return x + self.drop(function(layer_norm(x, gain, bias)))
        return layer_norm(x + self.drop(function(x)), gain, bias)

    def _last_norm(self, x: np.ndarray, stack: str) -> np.ndarray:
        if self.norm == "post":
            return x
        p = self.parameters
        return layer_norm(x, p[f"{stack}_norm.scale"], p[f"{stack}_norm.bias"])

    def _self(self, x: np.ndarray, place: "Place", *, masked: bool = False) -> np.ndarray:
        seen = [position + 1 if masked else len(x) for position in range(len(x))]
        rotary = self.positions == "rotary"
        return self._multi_head(x, x, seen, place, "attention", rotary=rotary)

    def _cross(self, x: np.ndarray, memory: np.ndarray, place: "Place") -> np.ndarray:
        seen = [len(memory)] * len(x)
        return self._multi_head(x, memory, seen, place, "cross_attention", rotary=False)

    def _multi_head(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        seen: Sequence[int],
        place: "Place",
        name: str,
        *,
        rotary: bool,
    ) -> np.ndarray:
        """Section 3.2.2; position t sees the first `seen[t]` positions of `memory`."""
        weights = {part: self._at(place, f"{name}.{part}") for part in ("query", "key", "value")}
        heads = []
        for head in range(weights["query"].shape[1]):
            queries = x @ weights["query"][:, head]
            keys = memory @ weights["key"][:, head]
            values = memory @ weights["value"][:, head]
            if rotary:
                queries, keys = rotated(queries), rotated(keys)
            d_k = keys.shape[1]
            heads.append(
                np.stack(
                    [
                        softmax(keys[:count] @ query / np.sqrt(d_k)) @ values[:count]
                        for query, count in zip(queries, seen, strict=True)
                    ]
                )
            )
        out = self._at(place, f"{name}.out")
        return np.concatenate(heads, axis=1) @ out.reshape(-1, out.shape[-1])

    def _ff(self, x: np.ndarray, place: "Place") -> np.ndarray:
        """Equation 2."""
        w_1, b_1, w_2, b_2 = (
            self._at(place, f"feed_forward.{name}")
            for name in ("into", "into_bias", "out", "out_bias")
        )
        return relu(x @ w_1 + b_1) @ w_2 + b_2

    def _at(self, place: "Place", name: str) -> np.ndarray:
        return self.parameters[f"{place.stack}.{name}"][place.layer]


@dataclass(frozen=True)
class Place:
    """A layer of a stack."""

    stack: str
    layer: int
