"""The trainable model: an encoder of the transformers package, and the decision head in torch's own modules.

Its parameters have the names that a checkpoint's tensors have, so that loading and saving is reading and
writing one file.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from kime_grpc.core.errors import UnsupportedError
from kime_grpc.models.files import CONFIG_FILE, WEIGHTS_FILE
from kime_grpc.models.head import ACT_FEATURES, ACT_HIDDEN, NORM_EPS, QUESTION_TYPES, attention_heads
from kime_grpc.training.batches import Batch

ENCODER_FOLDER = "encoder"
TOKENIZER_FOLDER = "tokenizer"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
)
_DEFAULT_ACTS = {"escalate": 0.5}
_DEFAULT_BUDGETS = {"max_len": 384, "head_max_len": 192}


class Network(nn.Module):
    """Rows in, a logit for each slot and act logits out."""

    def __init__(self, encoder: Any, head_layers: int, act_outputs: int) -> None:
        """Put a fresh head on an encoder."""
        super().__init__()
        self.encoder = encoder
        d: int = encoder.config.hidden_size
        layer = nn.TransformerEncoderLayer(
            d,
            attention_heads(d),
            4 * d,
            dropout=0.0,
            norm_first=True,
            batch_first=True,
            layer_norm_eps=NORM_EPS,
        )
        self.head = nn.TransformerEncoder(layer, head_layers, enable_nested_tensor=False)
        self.type_emb = nn.Embedding(QUESTION_TYPES, d)
        self.scorer = nn.Sequential(
            nn.LayerNorm(d, eps=NORM_EPS), nn.Linear(d, d), nn.GELU(), nn.Linear(d, 1)
        )
        self.act_head = nn.Sequential(
            nn.Linear(d + ACT_FEATURES, ACT_HIDDEN), nn.GELU(), nn.Linear(ACT_HIDDEN, act_outputs)
        )
        # Only part of the format: temperatures are read from the configuration.
        self.temperature = nn.Parameter(torch.ones(QUESTION_TYPES), requires_grad=False)
        nn.init.normal_(self.type_emb.weight, std=0.02)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Score a batch.

        Returns:
            float32 `[rows, options]`, logits, -inf where a row has no slot; float32 `[rows, act outputs]`.
        """
        return self.decide(self.encode(batch), batch)

    def encode(self, batch: Batch) -> Tensor:
        """What the encoder makes of every token, `[rows, tokens, d]`."""
        x: Tensor = self.encoder(input_ids=batch.ids, attention_mask=batch.is_token.long()).last_hidden_state
        return x

    def decide(self, x: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the heads make of the encoder's output; returns what `forward` does."""
        x = x + self.type_emb(batch.types)[:, None]  # [rows, tokens, d]
        x = self._read(x, batch)
        scores = self.scorer(x[:, 1:])[:, :, 0].float()  # [rows, options]
        logits = scores.masked_fill(~batch.is_slot, -math.inf)
        features = _features(logits.detach(), batch.is_slot).to(x.dtype)
        return logits, self.act_head(torch.cat((x[:, 0], features), dim=1)).float()

    def _read(self, x: Tensor, batch: Batch) -> Tensor:
        """What the head makes of the first token and of the markers, `[rows, 1 + options, d]`.

        The last layer is computed for these alone: nothing reads its other tokens.
        """
        at = F.pad(batch.markers, (1, 0))[:, :, None].expand(-1, -1, x.shape[-1])
        padding = ~batch.is_token
        layers = list(self.head.layers)
        for layer in layers[:-1]:
            x = layer(x, src_key_padding_mask=padding)
        chosen = x.gather(1, at)
        for last in layers[-1:]:
            seen = last.norm1(x)
            attended, _ = last.self_attn(seen.gather(1, at), seen, seen, padding, need_weights=False)
            chosen = chosen + attended
            chosen = chosen + last.linear2(last.activation(last.linear1(last.norm2(chosen))))
        return chosen


def _features(logits: Tensor, is_slot: Tensor) -> Tensor:
    """How sure the logits are: top, margin, entropy and count of the options, `[rows, 4]`."""
    p = logits.softmax(1)
    rivals = F.pad(p, (0, 1)).topk(2, dim=1).values  # a single option's rival has probability 0
    count = is_slot.sum(1).clamp(min=2)
    entropy = -(p * p.clamp(min=1e-9).log()).sum(1) / count.log()
    return torch.stack((rivals[:, 0], rivals[:, 0] - rivals[:, 1], entropy, count / 255), dim=1)


class Base:
    """What training starts from: a checkpoint, or a bare encoder.

    Attributes:
        config: `rl_agent_config.json`, or what a fresh one starts with.
        positions: the longest row that the encoder takes, in tokens.
        network: the model, with the weights that there are.
    """

    def __init__(self, directory: Path, head_layers: int, dropout: float = 0.0) -> None:
        """Open a directory.

        Args:
            directory: the checkpoint's or the encoder's.
            head_layers: how many a fresh head gets.
            dropout: the encoder's rate while it is trained, of each kind that it has.

        Raises:
            OSError, ValueError: it is neither a checkpoint nor an encoder.
            UnsupportedError: it has the parallel option layout.
        """
        self._directory = directory
        self._is_checkpoint = (directory / CONFIG_FILE).is_file()
        encoder_folder = directory / ENCODER_FOLDER if self._is_checkpoint else directory
        self.config: dict[str, Any] = (
            json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
            if self._is_checkpoint
            else {"head_layers": head_layers, "act_costs": _DEFAULT_ACTS, **_DEFAULT_BUDGETS}
        )
        if self.config.get("option_layout", "sequential") != "sequential":
            raise UnsupportedError("checkpoints with the parallel option layout cannot be trained")
        encoder_config = AutoConfig.from_pretrained(encoder_folder, local_files_only=True)
        self.config.setdefault("encoder", encoder_config.model_type)
        self.positions: int = encoder_config.max_position_embeddings
        make_encoder: Any = AutoModel.from_config  # without types
        self._rates = {
            name: value
            for name, value in encoder_config.to_dict().items()
            if "dropout" in name and isinstance(value, float)
        }
        for name in self._rates:
            setattr(encoder_config, name, dropout)
        encoder = make_encoder(encoder_config, attn_implementation="sdpa")
        acts = len(self.config.get("act_costs", {})) + 1
        self.network = Network(encoder.float(), self.config["head_layers"], acts)
        weights = {name: tensor.float() for name, tensor in load_file(directory / WEIGHTS_FILE).items()}
        if self._is_checkpoint:
            self.network.load_state_dict(weights)
        else:
            _load_encoder(self.network.encoder, weights)

    def save(self, directory: Path, config: dict[str, Any], dtype: torch.dtype = torch.float16) -> None:
        """Write the network as a checkpoint with this configuration."""
        (directory / ENCODER_FOLDER).mkdir(parents=True, exist_ok=True)
        encoder: Any = self.network.encoder
        encoder_config = encoder.config.to_dict() | self._rates
        encoder_config.pop("_name_or_path", None)
        _write_json(directory / ENCODER_FOLDER / "config.json", encoder_config)
        _write_json(directory / CONFIG_FILE, config)
        weights = {name: tensor.to(dtype).contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(weights, directory / WEIGHTS_FILE)
        self.save_tokenizer(directory)

    def save_tokenizer(self, directory: Path) -> None:
        """Copy the tokenizer's files into a checkpoint directory."""
        (directory / TOKENIZER_FOLDER).mkdir(parents=True, exist_ok=True)
        source = self._directory / TOKENIZER_FOLDER if self._is_checkpoint else self._directory
        for name in _TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, directory / TOKENIZER_FOLDER / name)


def _load_encoder(encoder: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load a bare encoder's file, whose names may have the prefix of the model that it was saved as."""
    names = set(encoder.state_dict())
    for prefix in ("", "model.", "bert.", "encoder."):
        found = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
        missing = {name for name in names - set(found) if not name.startswith("pooler.")}
        if not missing:
            encoder.load_state_dict({name: found[name] for name in names & set(found)}, strict=False)
            return
    raise ValueError(f"the encoder's {WEIGHTS_FILE} has other tensors than its configuration says")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
