"""Small random checkpoints in Laya's format, written as its training would write them.

The weights are random, but scaled so that options get clearly different logits: a mistake in the layout or
the arithmetic moves the answers instead of drowning in a flat distribution. Equal arguments give equal files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

Arch: TypeAlias = Literal["modernbert", "mmbert", "bert"]
Style: TypeAlias = Literal["new", "old"]

BRACKETS = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
ANGLES = {"pad": "<pad>", "cls": "<bos>", "sep": "<eos>", "unk": "<unk>", "mask": "<mask>"}

CORPUS = """
The parcel arrived two days late and the box was open; one of the three cups is broken.
Please cancel my subscription before the next invoice, I no longer use the service at all.
My card was charged twice in March. Which of the two payments will you give back, and when?
The app closes by itself whenever I tap on the map, since the update of last Tuesday.
choice question: which team should take this message? score question: how angry is the writer?
noul question: the customer asks for money back. true: yes, the statement holds. false: no, it does not hold.
level 0: calm and friendly. level 1: a little annoyed. level 2: furious and about to leave.
billing: payments, refunds and invoices. technical: errors, crashes and slow pages. sales: prices and offers.
{"order": {"id": 4711, "items": ["cup", "plate"], "total": 12.50, "paid": true, "note": null}}
[{"role": "user", "content": "Where is my order?"}, {"role": "assistant", "content": "On its way."}]
Could somebody call me this afternoon? My number is +49 30 901820, my name is Anna Müller-Weiß.
Guten Morgen, meine Rechnung ist falsch: statt zwölf Euro fünfzig stehen dort zwölfhundert Euro.
Bonjour, le colis est arrivé très tôt, merci beaucoup; le café était déjà froid, hélas.
¿Dónde está mi pedido? El número de seguimiento no funciona desde ayer por la mañana.
Ich möchte den Vertrag zum nächstmöglichen Zeitpunkt kündigen und bitte um eine Bestätigung.
नमस्ते, मेरा पार्सल अभी तक नहीं आया है। कृपया मेरी सहायता करें।
お世話になっております。注文した商品がまだ届きません。ご確認をお願いいたします。
Доброе утро! Мой заказ пришёл не полностью, не хватает одной тарелки.
你好，我的包裹还没有到，请帮我查一下。谢谢！ مرحبا، أين طلبي من فضلك؟
A state may be long: the first part says who writes, the middle says why, and the end says what is wanted.
Rain fell on the harbour all night, and in the morning the ships lay still under a low grey sky.
She counted the coins once more: seven, eight, nine; it would be enough for bread and a little cheese.
"""


def make_checkpoint(
    directory: Path,
    arch: Arch = "modernbert",
    *,
    seed: int = 0,
    style: Style = "new",
    d: int = 64,
    layers: int = 3,
    vocab: int = 640,
    encoder: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write a checkpoint.

    Args:
        directory: where to; made if it is not there.
        arch: `modernbert` (byte-level BPE, a short window), `mmbert` (BPE with byte fallback, one rope_theta)
            or `bert` (lower-cased WordPiece).
        seed: of the weights.
        style: the encoder's configuration as transformers 5 writes it, or as transformers 4 wrote it.
        d: the hidden size.
        layers: of the encoder.
        vocab: how many tokens the tokenizer has at most.
        encoder: further fields of the encoder's configuration.
        config: further fields of `rl_agent_config.json`.
    """
    from laya.common import DecisionModel
    from transformers import AutoModel

    tokens = BRACKETS if arch != "mmbert" else ANGLES
    tokenizer = _tokenizer(arch, vocab, tokens)
    _save_tokenizer(directory / "tokenizer", tokenizer, tokens)
    own = {
        "encoder": arch,
        "head_layers": 2,
        "max_len": 256,
        "head_max_len": 96,
        "temperature": [1.2, 0.9, 1.4],
        "temperature_by_options": {"choice:3-5": 1.6, "choice:11+": 0.2, "noul:2": 0.8, "score:3-5": 7.5},
        "act_costs": {"escalate": 0.5},
        "amp_dtype": "bf16",
    } | config
    _save_json(directory / "rl_agent_config.json", own)

    ids = {role: tokenizer.token_to_id(token) for role, token in tokens.items()}
    fields = {"hidden_size": d, "num_hidden_layers": layers, **(encoder or {})}
    encoder_config = _encoder_config(arch, tokenizer.get_vocab_size(), ids, fields)
    _save_json(directory / "encoder" / "config.json", _in_style(encoder_config.to_dict(), style))
    # On the meta device nothing is computed: only names and shapes are wanted.
    with torch.device("meta"):
        model = DecisionModel(
            AutoModel.from_config(encoder_config), own["head_layers"], len(own["act_costs"]) + 1
        )
    random = torch.Generator().manual_seed(seed)
    weights = {name: _random_weight(name, t.shape, random) for name, t in model.state_dict().items()}
    save_file(weights, directory / "model.safetensors")
    return directory


def _tokenizer(arch: Arch, vocab: int, tokens: Mapping[str, str]) -> Tokenizer:
    special = list(tokens.values())
    if arch == "bert":
        tokenizer = Tokenizer(models.WordPiece(unk_token=tokens["unk"]))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=special, show_progress=False)
    elif arch == "mmbert":
        tokenizer = Tokenizer(models.BPE(unk_token=tokens["unk"], byte_fallback=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.ByteFallback()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab,
            max_token_length=12,
            special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
            show_progress=False,
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{tokens['cls']} $A {tokens['sep']}",
        special_tokens=[(tokens[role], tokenizer.token_to_id(tokens[role])) for role in ("cls", "sep")],
    )
    # Real files carry these, and whoever reads the file must not obey them.
    tokenizer.enable_truncation(max_length=32)
    tokenizer.enable_padding(length=32, pad_id=tokenizer.token_to_id(tokens["pad"]), pad_token=tokens["pad"])
    return tokenizer


def _save_tokenizer(directory: Path, tokenizer: Tokenizer, tokens: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    named = {f"{role}_token": token for role, token in tokens.items()}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 100_000}
    _save_json(directory / "tokenizer_config.json", settings | named)


def _encoder_config(arch: Arch, vocab: int, ids: Mapping[str, int], fields: dict[str, Any]) -> Any:
    from transformers import BertConfig, ModernBertConfig

    d = fields["hidden_size"]
    common = {
        "vocab_size": vocab,
        "num_attention_heads": max(1, d // 32),
        "pad_token_id": ids["pad"],
    }
    if arch == "bert":
        return BertConfig(**common | {"intermediate_size": 2 * d, "max_position_embeddings": 512} | fields)
    theta = 160_000.0
    own = {
        "intermediate_size": d + d // 2,
        "max_position_embeddings": 1024,
        "global_attn_every_n_layers": 3,
        "local_attention": 128 if arch == "mmbert" else 32,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": theta},
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": theta if arch == "mmbert" else 10_000.0,
            },
        },
        "bos_token_id": ids["cls"],
        "eos_token_id": ids["sep"],
        "cls_token_id": ids["cls"],
        "sep_token_id": ids["sep"],
    }
    return ModernBertConfig(**common | own | fields)


def _in_style(config: dict[str, Any], style: Style) -> dict[str, Any]:
    if style == "old":
        rope = config.pop("rope_parameters", None)
        config.pop("layer_types", None)
        if rope is not None:
            config["global_rope_theta"] = rope["full_attention"]["rope_theta"]
            config["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
    return config


def _random_weight(name: str, shape: torch.Size, random: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=random)
    if len(shape) >= 2:
        gain = 4.0 if name == "scorer.3.weight" else 1.5 if "emb" in name else 1.0
        return noise * gain / shape[-1] ** 0.5
    if name.endswith("weight"):
        return 1 + 0.1 * noise
    return 0.05 * noise


def _save_json(path: Path, values: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
