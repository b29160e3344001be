"""Checkpoints that cannot be opened say why: every problem at once, with its file and its key or tensor."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kime_grpc.core.errors import ModelError, TokenizerError
from kime_grpc.models.model import Model
from tests.checkpoints import make_checkpoint
from tests.models.rows import Rows

CPU = torch.device("cpu")
OWN, ENCODER, WEIGHTS = "rl_agent_config.json", "encoder/config.json", "model.safetensors"


@pytest.fixture
def copied(checkpoints: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a checkpoint to break."""

    def copy(kind: str) -> Path:
        return Path(shutil.copytree(checkpoints[kind], tmp_path / kind))

    return copy


def set_fields(path: Path, **fields: Any) -> None:
    """Set fields of a JSON file; `...` drops one."""
    values = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def refusal(directory: Path) -> str:
    with pytest.raises(ModelError) as refused:
        Model.open(directory, CPU)
    return str(refused.value)


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        (OWN, {"encoder": ...}, "encoder is missing"),
        (OWN, {"head_layers": ...}, "head_layers is missing"),
        (OWN, {"head_layers": "2"}, "head_layers must be a whole number"),
        (OWN, {"head_layers": True}, "head_layers must be a whole number"),
        (OWN, {"head_layers": 1.0}, "head_layers must be a whole number"),
        (OWN, {"head_layers": -1}, "head_layers must be a whole number of at least 0"),
        (OWN, {"max_len": None}, "max_len must be a whole number"),
        (OWN, {"max_len": 0}, "max_len must be a whole number of at least 1"),
        (OWN, {"head_max_len": "96"}, "head_max_len must be a whole number"),
        (OWN, {"act_costs": 3}, "act_costs must be an object"),
        (OWN, {"temperature": 1.0}, "temperature must be a list of 3"),
        (OWN, {"temperature": [1.0, 2.0]}, "temperature must be a list of 3"),
        (OWN, {"temperature": None}, "temperature must be a list of 3"),
        (OWN, {"temperature_by_options": []}, "temperature_by_options must be an object"),
        (OWN, {"option_layout": "circular"}, "option_layout must be one of sequential, parallel"),
        (OWN, {"option_layout": None}, "option_layout must be one of sequential, parallel"),
        (ENCODER, {"model_type": ...}, "model_type must be one of modernbert, bert"),
        (ENCODER, {"model_type": "roberta"}, "model_type must be one of modernbert, bert, not 'roberta'"),
        (ENCODER, {"hidden_size": 65}, "hidden_size is 65, which num_attention_heads=2 does not divide"),
        (ENCODER, {"hidden_size": 66, "num_attention_heads": 6}, "heads of 11 numbers"),
        (ENCODER, {"hidden_size": 64.0}, "hidden_size must be a whole number"),
        (ENCODER, {"num_attention_heads": 0}, "num_attention_heads must be a whole number of at least 1"),
        (ENCODER, {"num_hidden_layers": -3}, "num_hidden_layers must be a whole number of at least 1"),
        (ENCODER, {"num_hidden_layers": 4}, "layer_types has 3 entries, but num_hidden_layers is 4"),
        (ENCODER, {"layer_types": ["full_attention", "mamba", "conv"]}, "layer_types must be a list of"),
        (ENCODER, {"layer_types": "full_attention"}, "layer_types must be a list of"),
        (ENCODER, {"local_attention": -2}, "local_attention must be a whole number of at least 0"),
        (ENCODER, {"norm_eps": 0}, "norm_eps must be a number above 0"),
        (ENCODER, {"norm_eps": "small"}, "norm_eps must be a number above 0"),
        (ENCODER, {"norm_bias": 1}, "norm_bias must be true or false"),
        (ENCODER, {"hidden_activation": "mish"}, "hidden_activation must be one of gelu"),
        (ENCODER, {"rope_parameters": {"rope_theta": 10.0}}, "rope_parameters must be an object with"),
        (
            ENCODER,
            {"rope_parameters": {"full_attention": 7}},
            "rope_parameters.full_attention must be an object",
        ),
        (
            ENCODER,
            {"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 4}}},
            "rope_parameters.sliding_attention.rope_type must be 'default'",
        ),
        (
            ENCODER,
            {"rope_parameters": {"full_attention": {"rope_theta": -1.0}}},
            "rope_parameters.full_attention.rope_theta must be a number above 0",
        ),
        (
            ENCODER,
            {"rope_scaling": {"type": "linear", "factor": 2}},
            "rope_scaling.rope_type must be 'default'",
        ),
        (ENCODER, {"rope_parameters": ..., "global_rope_theta": "far"}, "global_rope_theta must be a number"),
        (ENCODER, {"vocab_size": 4}, "vocab_size must be above 4, a special token's id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_that_cannot_be_is_named(
    file: str, fields: dict[str, Any], words: str, copied: Callable[[str], Path]
) -> None:
    directory = copied("modernbert")
    set_fields(directory / file, **fields)
    message = refusal(directory)
    assert file in message
    assert words in message


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        (
            ENCODER,
            {"position_embedding_type": "relative_key"},
            "position_embedding_type must be one of absolute",
        ),
        (ENCODER, {"is_decoder": True}, "is_decoder must be false"),
        (ENCODER, {"hidden_act": "silu"}, "hidden_act must be one of gelu"),
        (ENCODER, {"hidden_size": 63}, "hidden_size is 63, which num_attention_heads=2 does not divide"),
        (OWN, {"max_len": 513}, "max_len is 513, but the encoder has only 512 positions"),
        (OWN, {"option_layout": "parallel"}, "option_layout is 'parallel', which a BERT cannot run"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_bert_cannot_do_is_named(
    file: str, fields: dict[str, Any], words: str, copied: Callable[[str], Path]
) -> None:
    directory = copied("bert")
    set_fields(directory / file, **fields)
    message = refusal(directory)
    assert file in message
    assert words in message


def test_a_width_that_the_heads_layers_cannot_split_is_refused(copied: Callable[[str], Path]) -> None:
    directory = copied("bert")
    set_fields(directory / ENCODER, hidden_size=201, num_attention_heads=3)
    assert "hidden_size 201, which the head's 3 heads do not divide" not in refusal(directory)
    set_fields(directory / ENCODER, hidden_size=200, num_attention_heads=2)
    assert "hidden_size 200, which the head's 3 heads do not divide" in refusal(directory)


def test_problems_of_both_configurations_are_told_at_once(copied: Callable[[str], Path]) -> None:
    directory = copied("modernbert")
    set_fields(directory / OWN, head_layers=-1, temperature=[])
    set_fields(directory / ENCODER, norm_bias="no", vocab_size=0)
    message = refusal(directory)
    assert all(key in message for key in ("head_layers", "temperature", "norm_bias", "vocab_size"))


@pytest.mark.parametrize("file", [OWN, ENCODER])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\x00", '"text"', "[" * 100_000])
def test_a_configuration_that_is_no_json_object_is_refused(
    file: str, content: str, copied: Callable[[str], Path]
) -> None:
    directory = copied("modernbert")
    (directory / file).write_text(content)
    assert file in refusal(directory)


@pytest.mark.parametrize("file", [OWN, ENCODER, WEIGHTS])
def test_a_missing_file_is_named(file: str, copied: Callable[[str], Path]) -> None:
    directory = copied("modernbert")
    (directory / file).unlink()
    assert f"{file} is missing" in refusal(directory)


def test_no_directory_is_no_checkpoint(tmp_path: Path) -> None:
    assert "nowhere" in refusal(tmp_path / "nowhere")


def test_a_missing_tokenizer_is_the_tokenizers_error(copied: Callable[[str], Path]) -> None:
    directory = copied("modernbert")
    shutil.rmtree(directory / "tokenizer")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json is missing"):
        Model.open(directory, CPU)


@pytest.mark.parametrize("content", [b"", b"\x00" * 4, b"\xff" * 64, b"\x08" + b"\x00" * 7 + b"not json"])
def test_weights_that_are_no_safetensors_file_are_refused(
    content: bytes, copied: Callable[[str], Path]
) -> None:
    directory = copied("modernbert")
    (directory / WEIGHTS).write_bytes(content)
    assert f"{WEIGHTS} cannot be read" in refusal(directory)


def test_cut_weights_are_refused(copied: Callable[[str], Path]) -> None:
    directory = copied("modernbert")
    whole = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(whole[:-1000])
    assert f"{WEIGHTS} cannot be read" in refusal(directory)


def change_tensors(directory: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = {name: tensor.clone() for name, tensor in load_file(directory / WEIGHTS).items()}
    change(tensors)
    save_file(tensors, directory / WEIGHTS)


@pytest.mark.parametrize("kind", ["modernbert", "bert"])
def test_every_tensor_is_needed_and_named_when_it_is_missing(
    kind: str, copied: Callable[[str], Path]
) -> None:
    directory = copied(kind)
    whole = load_file(directory / WEIGHTS)
    for name in whole:
        save_file({other: whole[other].clone() for other in whole if other != name}, directory / WEIGHTS)
        assert re.search(rf"{re.escape(name)} \[.*\] is missing$", refusal(directory))


def test_all_tensors_that_are_wrong_are_told_at_once(copied: Callable[[str], Path]) -> None:
    directory = copied("bert")

    def change(tensors: dict[str, Tensor]) -> None:
        del tensors["temperature"]
        del tensors["encoder.pooler.dense.bias"]
        tensors["type_emb.weight"] = torch.zeros(4, 64)
        tensors["scorer.3.bias"] = torch.zeros(1, dtype=torch.float64)
        tensors["act_head.2.bias"] = torch.zeros(2, dtype=torch.int32)
        tensors["encoder.embeddings.position_ids"] = torch.zeros(1, 512)

    change_tensors(directory, change)
    message = refusal(directory)
    for words in (
        "temperature [3] is missing",
        "encoder.pooler.dense.bias [64] is missing",
        "type_emb.weight should be [3, 64] but is [4, 64]",
        "scorer.3.bias should be one of F32, F16, BF16 but is F64",
        "act_head.2.bias should be one of F32, F16, BF16 but is I32",
        "encoder.embeddings.position_ids is not a tensor of this model",
    ):
        assert words in message


def test_a_long_list_of_problems_is_cut_with_a_count(copied: Callable[[str], Path]) -> None:
    directory = copied("modernbert")
    set_fields(directory / ENCODER, num_hidden_layers=40, layer_types=...)
    message = refusal(directory)
    assert message.count("is missing") == 20
    assert re.search(r"and \d+ more$", message)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"head_layers": 1}, "head.layers.1.norm1.weight is not a tensor of this model"),
        ({"head_layers": 3}, "head.layers.2.norm1.weight [64] is missing"),
        ({"act_costs": {}}, "act_head.2.weight should be [1, 256] but is [2, 256]"),
    ],
    ids=str,
)
def test_tensors_and_configuration_must_agree(
    fields: dict[str, Any], words: str, copied: Callable[[str], Path]
) -> None:
    directory = copied("modernbert")
    set_fields(directory / OWN, **fields)
    assert words in refusal(directory)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_widened(dtype: torch.dtype, copied: Callable[[str], Path]) -> None:
    half, full = copied("modernbert"), copied("bert").parent / "full"
    shutil.copytree(half, full)
    change_tensors(half, lambda tensors: tensors.update({n: t.to(dtype) for n, t in tensors.items()}))
    change_tensors(full, lambda tensors: tensors.update({n: t.to(dtype).float() for n, t in tensors.items()}))
    narrow, wide = Model.open(half, CPU), Model.open(full, CPU)
    assert narrow.weight_bytes == wide.weight_bytes
    row = Rows(narrow).decided(options=3, state=40)
    ours, theirs = narrow.forward([row])[0], wide.forward([row])[0]
    assert ours.logits.tolist() == theirs.logits.tolist()


def test_defaults_are_the_references(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, act_costs={})
    set_fields(directory / OWN, **dict.fromkeys(("max_len", "head_max_len", "temperature", "act_costs"), ...))
    set_fields(directory / OWN, temperature_by_options=...)
    config = Model.open(directory, CPU).config
    assert (config.max_len, config.head_max_len, config.act_outputs) == (512, 192, 1)
    assert (config.temperature, config.temperature_by_options) == ([1.0, 1.0, 1.0], {})
    assert not config.parallel
