"""A checkpoint, opened: rows in, logits and act probabilities, or an embedding, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kime_grpc.core.errors import ModelError
from kime_grpc.core.layout import Row
from kime_grpc.models.bert import Bert, BertConfig
from kime_grpc.models.checkpoint import CheckpointConfig, Tensors
from kime_grpc.models.encoder import Encoder
from kime_grpc.models.fields import Fields, open_fields, refuse
from kime_grpc.models.files import CONFIG_FILE, ENCODER_FILE, CheckpointFiles, open_files
from kime_grpc.models.head import DecisionHead, attention_heads
from kime_grpc.models.modernbert import ModernBert, ModernBertConfig
from kime_grpc.models.packing import pack
from kime_grpc.models.tokenizer import TextTokenizer

FAMILIES = ("modernbert", "bert")

# RoPE has no table that ends, so a ModernBERT's rows are bounded by sense alone.
MAX_ROW_TOKENS = 65_536
# A parallel row's masks grow with the square of its length.
MAX_PARALLEL_ROW_TOKENS = 8192

_NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class RowOutput:
    """What the model says of one row.

    Attributes:
        logits: float32 `[options]`, in slot order, before any temperature; empty for a row without markers.
        act: float32 `[act outputs]`, probabilities; empty for a row without markers.
        embedding: the mean of the encoder's vectors, float32 `[hidden_size]`; None for a row with markers.
    """

    logits: NDArray[np.float32]
    act: NDArray[np.float32]
    embedding: NDArray[np.float32] | None = None


class Model:
    """An encoder and its decision head.

    Attributes:
        family: `modernbert` or `bert`.
        files: the checkpoint's.
        config: what the checkpoint's own configuration says.
        encoder_config: what the encoder's says.
        tokenizer: its tokenizer.
        hidden_size: the width of its vectors.
        max_row_tokens: the longest row that it takes.
        device: where it runs.
        weight_bytes: bytes of its weights.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        config: CheckpointConfig,
        encoder_config: ModernBertConfig | BertConfig,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Use `Model.open`."""
        self.files = files
        self.config = config
        self.encoder_config = encoder_config
        self.device = device
        self.hidden_size = encoder_config.hidden_size
        self.tokenizer = TextTokenizer.read(files)
        self._vocab_size = encoder_config.vocab_size
        self._check_special(files.path)
        tensors = Tensors(files, device, dtype)
        self._encoder: Encoder
        if isinstance(encoder_config, BertConfig):
            self.family = "bert"
            self.max_row_tokens = encoder_config.max_position_embeddings
            self._encoder = Bert(encoder_config, tensors)
        else:
            self.family = "modernbert"
            bound = MAX_PARALLEL_ROW_TOKENS if config.parallel else MAX_ROW_TOKENS
            self.max_row_tokens = max(encoder_config.max_position_embeddings, config.max_len, bound)
            self._encoder = ModernBert(encoder_config, tensors, device)
        self._head = DecisionHead(config.head_layers, self.hidden_size, config.act_outputs, tensors)
        tensors.finish()
        self.weight_bytes = tensors.weight_bytes

    @classmethod
    def open(cls, checkpoint: Path, device: torch.device, dtype: torch.dtype = torch.float32) -> Model:
        """Open a checkpoint.

        Args:
            checkpoint: a directory with `rl_agent_config.json`, `model.safetensors`, `encoder/config.json`
                and `tokenizer/`, or a `.kime` file.
            device: where the model runs.
            dtype: what it computes in. float32 on the CPU reads the weights straight from the mapped file.

        Raises:
            ModelError: the checkpoint is broken, or of a kind that is not known; says all that is wrong with
                its configuration, or else all that is wrong with its tensors.
            TokenizerError: the tokenizer is broken.
        """
        files = open_files(checkpoint)
        config, encoder_config = _read_configs(files)
        return cls(files, config, encoder_config, device, dtype)

    @torch.inference_mode()
    def forward(self, rows: Sequence[Row]) -> list[RowOutput]:
        """Run rows as one packed batch. What is said of a row does not depend on the others, to the last bit.

        Args:
            rows: rows with markers are decided, rows without are embedded; both may share a batch.

        Returns:
            One output a row, in order.

        Raises:
            ModelError: a token id that the checkpoint has no vector for.
            ValueError: a row is longer than `max_row_tokens`.
        """
        outputs = [RowOutput(_NOTHING, _NOTHING, np.zeros(self.hidden_size, np.float32)) for _ in rows]
        # A text of no tokens has nothing to encode.
        at = [i for i, row in enumerate(rows) if row.ids]
        if not at:
            return outputs
        self._check_rows(rows)
        batch = pack([rows[i] for i in at], self.device)
        hidden = self._encoder(batch)  # [tokens, d]

        decided = [i for i, row in enumerate(batch.rows) if row.markers]
        for i in set(range(len(at))).difference(decided):
            start, end = batch.bounds[i]
            mean = hidden[start:end].float().mean(dim=0)
            outputs[at[i]] = RowOutput(_NOTHING, _NOTHING, mean.cpu().numpy())
        if decided:
            if len(decided) < len(at):
                hidden = torch.cat([hidden[slice(*batch.bounds[i])] for i in decided])
            decisions = self._head(hidden, [batch.rows[i] for i in decided])
            for i, decision in zip(decided, decisions, strict=True):
                outputs[at[i]] = RowOutput(decision.logits, decision.act)
        return outputs

    def plan_bytes(self) -> int:
        """Bytes that batches so far made the model keep: the rotary tables."""
        return self._encoder.plan_bytes()

    def _check_special(self, checkpoint: Path) -> None:
        special = self.tokenizer.special
        highest = max(special.cls, special.sep, special.mask)
        if highest >= self._vocab_size:
            refuse(checkpoint, [f"{ENCODER_FILE}: vocab_size must be above {highest}, a special token's id"])

    def _check_rows(self, rows: Sequence[Row]) -> None:
        longest = max(len(row.ids) for row in rows)
        if longest > self.max_row_tokens:
            raise ValueError(f"a row of {longest} tokens is longer than {self.max_row_tokens}")
        highest = max(max(row.ids, default=0) for row in rows)
        if highest >= self._vocab_size:
            raise ModelError(f"the tokenizer gave token {highest}, but the model has only {self._vocab_size}")


def _read_configs(files: CheckpointFiles) -> tuple[CheckpointConfig, ModernBertConfig | BertConfig]:
    problems: list[str] = []
    own = open_fields(files, CONFIG_FILE, problems)
    config = None if own is None else CheckpointConfig.from_fields(own)
    encoders = open_fields(files, ENCODER_FILE, problems)
    encoder = None if encoders is None else _encoder_config(encoders)
    if own and config and encoder:
        _check_together(own, config, encoder)
    if problems or config is None or encoder is None:
        refuse(files.path, problems)
    return config, encoder


def _encoder_config(fields: Fields) -> ModernBertConfig | BertConfig | None:
    family = fields.one_of("model_type", "", FAMILIES)
    if family == "bert":
        return BertConfig.from_fields(fields)
    return ModernBertConfig.from_fields(fields) if family == "modernbert" else None


def _check_together(own: Fields, config: CheckpointConfig, encoder: ModernBertConfig | BertConfig) -> None:
    """Note what is wrong between the checkpoint's own configuration and the encoder's."""
    heads = attention_heads(encoder.hidden_size)
    if encoder.hidden_size % heads:
        own.note(
            "encoder", f"has hidden_size {encoder.hidden_size}, which the head's {heads} heads do not divide"
        )
    if isinstance(encoder, BertConfig):
        positions = encoder.max_position_embeddings
        if config.max_len > positions:
            own.note("max_len", f"is {config.max_len}, but the encoder has only {positions} positions")
        if config.parallel:
            own.note("option_layout", "is 'parallel', which a BERT cannot run: use a ModernBERT")
