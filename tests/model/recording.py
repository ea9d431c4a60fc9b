"""The numpy Transformer, keeping its attention."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .reference import Place, Reference, rotated, softmax


@dataclass(frozen=True)
class Recording(Reference):
    """A `Reference` that keeps what `attention` gives."""

    seen: dict[tuple[str, str], dict[int, np.ndarray]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """[N, T, S] by (stack, sub-layer) and layer."""

    def _multi_head(
        self,
        x: np.ndarray,
        memory: np.ndarray,
        seen: Sequence[int],
        place: Place,
        name: str,
        *,
        rotary: bool,
    ) -> np.ndarray:
        heads = []
        for head in range(self._at(place, f"{name}.query").shape[1]):
            queries = x @ self._at(place, f"{name}.query")[:, head]
            keys = memory @ self._at(place, f"{name}.key")[:, head]
            if rotary:
                queries, keys = rotated(queries), rotated(keys)
            rows = np.zeros((len(queries), len(keys)))
            for row, (query, count) in enumerate(zip(queries, seen, strict=True)):
                rows[row, :count] = softmax(keys[:count] @ query / np.sqrt(len(query)))
            heads.append(rows)
        self.seen[place.stack, name][place.layer] = np.stack(heads)
        return super()._multi_head(x, memory, seen, place, name, rotary=rotary)

    def attention(self, source: Sequence[int], target: Sequence[int]) -> dict[str, np.ndarray]:
        """[L, N, T, S] by kind, in float64."""
        self.logits(source, target)
        kinds = {
            "encoder": ("encoder", "attention"),
            "decoder": ("decoder", "attention"),
            "cross": ("decoder", "cross_attention"),
        }
        return {
            kind: np.stack([self.seen[key][layer] for layer in sorted(self.seen[key])])
            for kind, key in kinds.items()
        }
