"""ModernBERT: a pre-norm encoder with rotary positions, gated MLPs, and layers that see all or a window.

Warner et al., "Smarter, Better, Faster, Longer", arXiv:2412.13663.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kime_grpc.models.attention import Span, attend, full_spans, sliding_spans
from kime_grpc.models.checkpoint import Tensors
from kime_grpc.models.encoder import ACTIVATIONS
from kime_grpc.models.fields import Fields
from kime_grpc.models.layers import LayerNorm, Linear
from kime_grpc.models.linear import Activation
from kime_grpc.models.packing import PackedRows
from kime_grpc.models.rope import RotaryTable, rotate

FULL, SLIDING = "full_attention", "sliding_attention"

# The old files' key for a layer type's rope_theta, and its value where a file has none.
_THETA = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}


@dataclass(frozen=True, slots=True)
class ModernBertConfig:
    """`encoder/config.json` of a ModernBERT, as transformers 4 or 5 writes it.

    Attributes:
        window: how many positions to either side a token sees in a sliding layer.
        layer_types: `full_attention` or `sliding_attention`, one a layer.
        rope_theta: by layer type.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    max_position_embeddings: int
    activation: Activation
    norm_eps: float
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool
    window: int
    layer_types: tuple[str, ...]
    rope_theta: Mapping[str, float]

    @classmethod
    def from_fields(cls, fields: Fields) -> ModernBertConfig:
        """Read the configuration; problems are noted in `fields`."""
        hidden_size = fields.integer("hidden_size", 768, minimum=1)
        heads = fields.integer("num_attention_heads", 12, minimum=1)
        if hidden_size % heads:
            fields.note("hidden_size", f"is {hidden_size}, which num_attention_heads={heads} does not divide")
        elif hidden_size // heads % 2:
            fields.note(
                "hidden_size", f"gives heads of {hidden_size // heads} numbers, and RoPE needs an even count"
            )
        if fields.values.get("sliding_window") is not None:
            window = fields.integer("sliding_window", 64, minimum=0)
        else:
            window = fields.integer("local_attention", 128, minimum=0) // 2
        return cls(
            vocab_size=fields.integer("vocab_size", 50368, minimum=1),
            hidden_size=hidden_size,
            intermediate_size=fields.integer("intermediate_size", 1152, minimum=1),
            num_attention_heads=heads,
            max_position_embeddings=fields.integer("max_position_embeddings", 8192, minimum=1),
            activation=ACTIVATIONS[fields.one_of("hidden_activation", "gelu", ACTIVATIONS)],
            norm_eps=fields.positive("norm_eps", 1e-5),
            norm_bias=fields.flag("norm_bias", default=False),
            attention_bias=fields.flag("attention_bias", default=False),
            mlp_bias=fields.flag("mlp_bias", default=False),
            window=window,
            layer_types=_layer_types(fields),
            rope_theta=_rope_theta(fields),
        )


def _layer_types(fields: Fields) -> tuple[str, ...]:
    layers = fields.integer("num_hidden_layers", 22, minimum=1)
    every = fields.integer("global_attn_every_n_layers", 3, minimum=1)
    found = fields.values.get("layer_types")
    if found is None:
        return tuple(SLIDING if i % every else FULL for i in range(layers))
    if not isinstance(found, list) or not all(kind in (FULL, SLIDING) for kind in found):
        fields.note("layer_types", f"must be a list of {FULL} and {SLIDING}, not {found!r}")
        return ()
    if len(found) != layers:
        fields.note("layer_types", f"has {len(found)} entries, but num_hidden_layers is {layers}")
    return tuple(found)


def _rope_theta(fields: Fields) -> dict[str, float]:
    """rope_theta by layer type: of `rope_parameters`, else of the old keys, else the default."""
    scaling = fields.values.get("rope_scaling")
    if scaling is not None:
        _check_rope_type(fields, "rope_scaling", scaling)
    parameters: Any = fields.values.get("rope_parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict) or not set(parameters) <= set(_THETA):
        fields.note("rope_parameters", f"must be an object with {FULL} and {SLIDING}, not {parameters!r}")
        parameters = {}
    thetas = {}
    for kind, (old_key, default) in _THETA.items():
        own = parameters.get(kind, {})
        if _check_rope_type(fields, f"rope_parameters.{kind}", own) and "rope_theta" in own:
            nested = Fields(
                fields.file, {f"rope_parameters.{kind}.rope_theta": own["rope_theta"]}, fields.problems
            )
            thetas[kind] = nested.positive(f"rope_parameters.{kind}.rope_theta", default)
        else:
            thetas[kind] = fields.positive(old_key, default)
    return thetas


def _check_rope_type(fields: Fields, key: str, parameters: Any) -> bool:
    """Whether `parameters` is an object; notes it if not, or if it asks for another kind of RoPE."""
    if not isinstance(parameters, dict):
        fields.note(key, f"must be an object, not {parameters!r}")
        return False
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        fields.note(f"{key}.rope_type", f"must be 'default', the only kind that is supported, not {kind!r}")
    return True


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights."""

    kind: str
    attn_norm: LayerNorm | None
    Wqkv: Linear
    attn_Wo: Linear
    mlp_norm: LayerNorm
    Wi_act: Linear
    Wi_gate: Linear
    mlp_Wo: Linear

    @classmethod
    def take(cls, tensors: Tensors, name: str, index: int, config: ModernBertConfig) -> _Layer:
        d, intermediate = config.hidden_size, config.intermediate_size
        eps, norm_bias = config.norm_eps, config.norm_bias
        Wi = Linear.take(tensors, f"{name}.mlp.Wi", 2 * intermediate, d, bias=config.mlp_bias)
        return cls(
            kind=config.layer_types[index],
            # The embeddings are normed already.
            attn_norm=None
            if index == 0
            else LayerNorm.take(tensors, f"{name}.attn_norm", d, eps, bias=norm_bias),
            Wqkv=Linear.take(tensors, f"{name}.attn.Wqkv", 3 * d, d, bias=config.attention_bias),
            attn_Wo=Linear.take(tensors, f"{name}.attn.Wo", d, d, bias=config.attention_bias),
            mlp_norm=LayerNorm.take(tensors, f"{name}.mlp_norm", d, eps, bias=norm_bias),
            Wi_act=Wi.rows(0, intermediate),
            Wi_gate=Wi.rows(intermediate, 2 * intermediate),
            mlp_Wo=Linear.take(tensors, f"{name}.mlp.Wo", d, intermediate, bias=config.mlp_bias),
        )


class ModernBert:
    """The encoder."""

    def __init__(self, config: ModernBertConfig, tensors: Tensors, device: torch.device) -> None:
        """Take the encoder's tensors."""
        d, eps, norm_bias = config.hidden_size, config.norm_eps, config.norm_bias
        self._config = config
        self._tok_embeddings = tensors.take("encoder.embeddings.tok_embeddings.weight", config.vocab_size, d)
        self._embeddings_norm = LayerNorm.take(tensors, "encoder.embeddings.norm", d, eps, bias=norm_bias)
        self._layers = [
            _Layer.take(tensors, f"encoder.layers.{i}", i, config) for i in range(len(config.layer_types))
        ]
        self._final_norm = LayerNorm.take(tensors, "encoder.final_norm", d, eps, bias=norm_bias)
        head_dim = d // config.num_attention_heads
        # Layer types with one rope_theta, as mmBERT's, share a table.
        tables = {theta: RotaryTable(theta, head_dim, device) for theta in config.rope_theta.values()}
        self._rope = {kind: tables[config.rope_theta[kind]] for kind in set(config.layer_types)}

    def __call__(self, batch: PackedRows) -> Tensor:
        """Encode a batch, `[tokens, d]`."""
        x = self._embeddings_norm(F.embedding(batch.ids, self._tok_embeddings))  # [tokens, d]
        spans = {
            FULL: full_spans(batch, x.dtype),
            SLIDING: sliding_spans(batch, self._config.window, x.dtype),
        }
        angles = {kind: rope.angles(batch.position_ids, batch.positions) for kind, rope in self._rope.items()}
        for layer in self._layers:
            h = x if layer.attn_norm is None else layer.attn_norm(x)
            x = x + self._attention(layer, h, angles[layer.kind], spans[layer.kind])
            x = x + _mlp(layer, layer.mlp_norm(x), self._config.activation)
        return self._final_norm(x)

    def plan_bytes(self) -> int:
        """Bytes of the rotary tables."""
        return sum(table.nbytes for table in set(self._rope.values()))

    def _attention(
        self, layer: _Layer, h: Tensor, angles: tuple[Tensor, Tensor], spans: list[Span]
    ) -> Tensor:
        qkv = layer.Wqkv(h)  # [tokens, 3 * d]
        q, k, v = qkv.view(len(h), 3, self._config.num_attention_heads, -1).unbind(
            1
        )  # [tokens, heads, head_dim]
        return layer.attn_Wo(attend(rotate(q, *angles), rotate(k, *angles), v, spans))  # [tokens, d]


def _mlp(layer: _Layer, h: Tensor, activation: Activation) -> Tensor:
    """GeGLU: one half of Wi is activated, the other gates it."""
    gated = layer.Wi_act(h, activation) * layer.Wi_gate(h)  # [tokens, intermediate]
    return layer.mlp_Wo(gated)  # [tokens, d]
