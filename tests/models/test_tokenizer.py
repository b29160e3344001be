"""The same token ids as the reference's tokenizer class gives on the same directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from kime_grpc.core.errors import TokenizerError
from kime_grpc.models.tokenizer import TextTokenizer
from tests.checkpoints import CORPUS

KINDS = ("modernbert", "mmbert", "bert")
TEXTS = (
    "",
    " ",
    "\n",
    "\n\n\t \r\n",
    "\x00",
    "a\x00b\x07\x1b[0m\x7f\x85",
    "plain words",
    "  two  spaces   and a trailing one ",
    "[CLS] [SEP][MASK] [PAD] [UNK] <mask> <bos><eos> <pad> <unk> [mask] [ MASK ]",
    "ＦＵＬＬ ﬁ ① é e\u0301 \u200b\u200d\ufeff\u202e",
    "नमस्ते दुनिया 返金をお願いします مرحبا Доброе утро",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0010ffff \ufffe",
    '{"k": [1, 2.50, null, "ünï"]}',
    "▁already ▁marked <0x41> ##ing",
    "x" * 3000,
    CORPUS * 5,
)


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> tuple[TextTokenizer, Any]:
    """Ours, and the reference's."""
    directory = checkpoints[request.param]
    return TextTokenizer.open(directory), AutoTokenizer.from_pretrained(directory / "tokenizer")


@pytest.fixture
def changed(checkpoints: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """A ModernBERT checkpoint's tokenizer with other fields in its files: None drops a field, or a file."""

    def change(
        config: dict[str, Any] | None = None,
        file: dict[str, Any] | None = None,
        special_tokens_map: dict[str, Any] | None = None,
    ) -> Path:
        shutil.copytree(checkpoints["modernbert"] / "tokenizer", tmp_path / "tokenizer")
        for name, fields in (("tokenizer_config.json", config), ("tokenizer.json", file)):
            path = tmp_path / "tokenizer" / name
            values = json.loads(path.read_text()) | (fields or {})
            path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
        if special_tokens_map is not None:
            (tmp_path / "tokenizer" / "special_tokens_map.json").write_text(json.dumps(special_tokens_map))
        return tmp_path

    return change


# More ids than any of the texts has.
ALL = 1_000_000


def reference_ids(reference: Any, text: str) -> list[int]:
    ids: list[int] = reference(text, add_special_tokens=False)["input_ids"]
    return ids


def test_ids_are_the_references(pair: tuple[TextTokenizer, Any]) -> None:
    ours, reference = pair
    for text, ids in zip(TEXTS, ours.encode(TEXTS, ALL)[0], strict=True):
        assert ids == reference_ids(reference, text), text[:60]


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60))
def test_ids_are_the_references_for_any_text(pair: tuple[TextTokenizer, Any], text: str) -> None:
    ours, reference = pair
    assert ours.encode([text], ALL)[0] == [reference_ids(reference, text)]


@pytest.mark.parametrize("max_length", [2, 3, 10, 31, 33, 512])
def test_ids_for_embedding_are_the_references(pair: tuple[TextTokenizer, Any], max_length: int) -> None:
    ours, reference = pair
    expected = reference(list(TEXTS), truncation=True, max_length=max_length)["input_ids"]
    assert ours.encode_with_special(TEXTS, max_length) == expected


def test_a_length_without_room_for_the_special_tokens_is_refused(pair: tuple[TextTokenizer, Any]) -> None:
    ours, _ = pair
    assert ours.special_count == 2
    with pytest.raises(ValueError, match="at least 2"):
        ours.encode_with_special(["text"], 1)


def test_special_tokens_are_the_references(pair: tuple[TextTokenizer, Any]) -> None:
    ours, reference = pair
    assert ours.special.cls == reference.cls_token_id
    assert ours.special.sep == reference.sep_token_id
    assert ours.special.mask == reference.mask_token_id
    assert ours.special.mask_literal == reference.mask_token


@pytest.mark.parametrize("most", [1, 3, 8, 1000])
def test_of_a_long_text_only_the_ids_that_are_wanted_are_given(
    pair: tuple[TextTokenizer, Any], most: int
) -> None:
    ours, _ = pair
    texts = ["one two three four five six seven", *TEXTS]
    whole, counts = ours.encode(texts, ALL)
    assert counts == list(map(len, whole)) == ours.count(texts)
    assert ours.encode(texts, most) == ([ids[:most] for ids in whole], counts)
    ends, same_counts = ours.encode(texts, most, keep_first_end=True)
    assert ends == [whole[0][-most:], *(ids[:most] for ids in whole[1:])]
    assert same_counts == counts


def test_no_texts_give_no_ids(pair: tuple[TextTokenizer, Any]) -> None:
    ours, _ = pair
    assert ours.encode([], ALL) == ([], [])
    assert ours.encode_with_special([], 10) == []


def test_threads_share_a_tokenizer(pair: tuple[TextTokenizer, Any]) -> None:
    ours, _ = pair
    alone = ours.encode(TEXTS, ALL)
    with ThreadPoolExecutor(4) as pool:
        plain = [pool.submit(ours.encode, TEXTS, ALL) for _ in range(8)]
        cut = [pool.submit(ours.encode_with_special, TEXTS, 7 + i) for i in range(8)]
        assert all(future.result() == alone for future in plain)
        for i, future in enumerate(cut):
            assert max(map(len, future.result())) == 7 + i


@pytest.mark.parametrize(
    "files",
    [
        {"config": {"bos_token": "<start>", "image_token": "<image>"}},
        {"config": {"extra_special_tokens": ["<one>", "<two>"]}},
        {"config": {"extra_special_tokens": {"a": "<one>", "b": "<two>"}}},
        {"config": {"additional_special_tokens": ["<one>"]}},
        {
            "config": {
                "eos_token": {"__type": "AddedToken", "content": "<end>", "lstrip": True, "rstrip": True}
            }
        },
        {
            "config": {
                "added_tokens_decoder": {
                    "4": {"content": "[MASK]", "lstrip": True, "normalized": False, "special": True},
                    "700": {"content": "refund", "normalized": False, "special": False},
                }
            }
        },
        {"special_tokens_map": {"unk_token": "<what>", "mask_token": {"content": "[MASK]", "lstrip": True}}},
        {"special_tokens_map": {"mask_token": "<hole>"}, "config": {"mask_token": "[MASK]"}},
        {
            "special_tokens_map": {"extra_special_tokens": ["<one>"]},
            "config": {"extra_special_tokens": ["<two>"]},
        },
        {"special_tokens_map": {"extra_special_tokens": [{"content": "<one>", "lstrip": True}]}},
        {"special_tokens_map": {"additional_special_tokens": ["<one>"]}},
        {"special_tokens_map": {"extra_special_tokens": {"a": "<one>"}}},
        {"config": {"add_bos_token": False, "tokens_per_token": 3, "audio_token": None}},
        {"config": {"pad_token": None}},
        {"config": {"split_special_tokens": True}},
        {"file": {"added_tokens": []}},
        {"file": {"post_processor": None}},
        {"file": {"truncation": None, "padding": None}},
    ],
    ids=str,
)
def test_tokens_that_the_files_name_are_read_as_the_reference_reads_them(
    files: dict[str, Any], changed: Callable[..., Path]
) -> None:
    directory = changed(**files)
    ours, reference = TextTokenizer.open(directory), AutoTokenizer.from_pretrained(directory / "tokenizer")
    texts = (
        "a <start> b<image> <one><two>  <end>  c [MASK]  [PAD] <what> <hole> refund refunds [CLS]",
        "[MASK]",
        " \n[MASK]\n ",
    )
    for text, ids in zip(texts, ours.encode(texts, ALL)[0], strict=True):
        assert ids == reference_ids(reference, text)
    assert (
        ours.encode_with_special(texts, 9)
        == reference(list(texts), truncation=True, max_length=9)["input_ids"]
    )
    assert (ours.special.cls, ours.special.mask) == (reference.cls_token_id, reference.mask_token_id)
    assert ours.special.mask_literal == reference.mask_token


def test_embeddings_keep_the_end_where_the_file_says_so(changed: Callable[..., Path]) -> None:
    directory = changed(config={"truncation_side": "left"})
    ours, reference = TextTokenizer.open(directory), AutoTokenizer.from_pretrained(directory / "tokenizer")
    expected = reference(list(TEXTS), truncation=True, max_length=9)["input_ids"]
    assert ours.encode_with_special(TEXTS, 9) == expected


def test_all_tokens_that_are_missing_are_named(changed: Callable[..., Path]) -> None:
    directory = changed(
        config={"cls_token": None, "mask_token": None, "pad_token": None}, file={"padding": None}
    )
    with pytest.raises(TokenizerError) as refusal:
        TextTokenizer.open(directory)
    message = str(refusal.value)
    assert all(word in message for word in ("tokenizer_config.json", "cls_token", "mask_token", "pad_token"))
    assert "sep_token" not in message


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '"text"', "\x00\xff", '{"version": "1.0"}'])
def test_a_missing_or_broken_file_is_named(
    name: str, content: str | None, changed: Callable[..., Path]
) -> None:
    directory = changed()
    path = directory / "tokenizer" / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(TokenizerError, match=name):
        TextTokenizer.open(directory)


@pytest.mark.parametrize(
    "config",
    [
        {"added_tokens_decoder": {"x": {"content": "<a>"}}},
        {"added_tokens_decoder": {"9": "<a>"}},
        {"added_tokens_decoder": []},
        {"extra_special_tokens": [7]},
        {"extra_special_tokens": 7},
        {"mask_token": 7},
        {"mask_token": {"text": "<mask>"}},
    ],
    ids=str,
)
def test_a_token_that_is_none_is_refused(config: dict[str, Any], changed: Callable[..., Path]) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json"):
        TextTokenizer.open(changed(config=config))
