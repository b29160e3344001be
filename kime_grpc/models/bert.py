"""BERT: a post-norm encoder with learnt absolute positions. Devlin et al., arXiv:1810.04805."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from kime_grpc.models.attention import attend, full_spans
from kime_grpc.models.checkpoint import Tensors
from kime_grpc.models.encoder import ACTIVATIONS
from kime_grpc.models.fields import Fields
from kime_grpc.models.layers import LayerNorm, Linear
from kime_grpc.models.linear import Activation
from kime_grpc.models.packing import PackedRows


@dataclass(frozen=True, slots=True)
class BertConfig:
    """`encoder/config.json` of a BERT."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    activation: Activation
    layer_norm_eps: float

    @classmethod
    def from_fields(cls, fields: Fields) -> BertConfig:
        """Read the configuration; problems are noted in `fields`."""
        hidden_size = fields.integer("hidden_size", 768, minimum=1)
        heads = fields.integer("num_attention_heads", 12, minimum=1)
        if hidden_size % heads:
            fields.note("hidden_size", f"is {hidden_size}, which num_attention_heads={heads} does not divide")
        fields.one_of("position_embedding_type", "absolute", ("absolute",))
        for key in ("is_decoder", "add_cross_attention"):
            if fields.flag(key, default=False):
                fields.note(key, "must be false: only encoders answer")
        return cls(
            vocab_size=fields.integer("vocab_size", 30522, minimum=1),
            hidden_size=hidden_size,
            num_hidden_layers=fields.integer("num_hidden_layers", 12, minimum=1),
            num_attention_heads=heads,
            intermediate_size=fields.integer("intermediate_size", 3072, minimum=1),
            max_position_embeddings=fields.integer("max_position_embeddings", 512, minimum=1),
            type_vocab_size=fields.integer("type_vocab_size", 2, minimum=1),
            activation=ACTIVATIONS[fields.one_of("hidden_act", "gelu", ACTIVATIONS)],
            layer_norm_eps=fields.positive("layer_norm_eps", 1e-12),
        )


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights."""

    qkv: Linear
    attention_output: Linear
    attention_norm: LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: LayerNorm

    @classmethod
    def take(cls, tensors: Tensors, name: str, config: BertConfig) -> _Layer:
        d, intermediate, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        query, key, value = (
            Linear.take(tensors, f"{name}.attention.self.{part}", d, d) for part in ("query", "key", "value")
        )
        return cls(
            # Of a few tokens three small products take nearly twice as long as a big one.
            qkv=Linear.stack(query, key, value),
            attention_output=Linear.take(tensors, f"{name}.attention.output.dense", d, d),
            attention_norm=LayerNorm.take(tensors, f"{name}.attention.output.LayerNorm", d, eps),
            intermediate=Linear.take(tensors, f"{name}.intermediate.dense", intermediate, d),
            output=Linear.take(tensors, f"{name}.output.dense", d, intermediate),
            output_norm=LayerNorm.take(tensors, f"{name}.output.LayerNorm", d, eps),
        )


class Bert:
    """The encoder."""

    def __init__(self, config: BertConfig, tensors: Tensors) -> None:
        """Take the encoder's tensors."""
        d, name = config.hidden_size, "encoder.embeddings"
        self._config = config
        self._words = tensors.take(f"{name}.word_embeddings.weight", config.vocab_size, d)
        self._positions = tensors.take(
            f"{name}.position_embeddings.weight", config.max_position_embeddings, d
        )
        self._types = tensors.take(f"{name}.token_type_embeddings.weight", config.type_vocab_size, d)
        self._norm = LayerNorm.take(tensors, f"{name}.LayerNorm", d, config.layer_norm_eps)
        self._layers = [
            _Layer.take(tensors, f"encoder.encoder.layer.{i}", config)
            for i in range(config.num_hidden_layers)
        ]
        # The pooler belongs to every BERT checkpoint, but nothing here reads it.
        tensors.require("encoder.pooler.dense.weight", d, d)
        tensors.require("encoder.pooler.dense.bias", d)

    def __call__(self, batch: PackedRows) -> Tensor:
        """Encode a batch, `[tokens, d]`."""
        words = F.embedding(batch.ids, self._words)  # [tokens, d]
        # Every token is of type 0.
        x = words + self._types[0] + F.embedding(batch.position_ids, self._positions)
        x = self._norm(x)
        spans = full_spans(batch, x.dtype)
        heads = self._config.num_attention_heads
        for layer in self._layers:
            # [tokens, heads, head_dim]
            q, k, v = layer.qkv(x).view(len(x), 3, heads, -1).unbind(1)
            x = layer.attention_norm(layer.attention_output(attend(q, k, v, spans)) + x)  # [tokens, d]
            h = layer.intermediate(x, self._config.activation)  # [tokens, intermediate]
            x = layer.output_norm(layer.output(h) + x)  # [tokens, d]
        return x

    def plan_bytes(self) -> int:
        """Nothing is kept between batches."""
        return 0
