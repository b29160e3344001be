"""`.kime` files: they answer as the directory does, bit for bit, and say what is wrong with a broken one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kime_grpc import Kime
from kime_grpc.core.errors import ModelError, NotFoundError
from kime_grpc.models.files import (
    ALIGNMENT,
    MAGIC,
    PARTS,
    WEIGHTS_FILE,
    Directory,
    PackedFile,
    open_files,
    pack,
)
from kime_grpc.models.hub import resolve
from kime_grpc.models.mapped_tensors import MappedTensors
from kime_grpc.models.model import Model
from tests.models.rows import Rows

CPU = torch.device("cpu")


@pytest.fixture
def packed(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "some model.kime"
    assert pack(checkpoints["bert"], path) == path.stat().st_size
    return path


@pytest.mark.parametrize("kind", ["modernbert", "modernbert-parallel", "mmbert-old", "bert"])
def test_a_packed_model_answers_with_the_same_bits(
    kind: str, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model.kime"
    pack(checkpoints[kind], path)
    one, other = Model.open(checkpoints[kind], CPU), Model.open(path, CPU)
    random_rows = Rows(one)
    rows = [random_rows.decided(options=3, state=20) for _ in range(6)]
    for here, there in zip(one.forward(rows), other.forward(rows), strict=True):
        assert here.logits.tobytes() == there.logits.tobytes()
        assert here.act.tobytes() == there.act.tobytes()
    assert one.tokenizer.special == other.tokenizer.special
    assert one.weight_bytes == other.weight_bytes


def test_every_part_is_the_directorys_file_and_begins_at_a_page(
    packed: Path, checkpoints: dict[str, Path]
) -> None:
    directory, file = Directory(checkpoints["bert"]), PackedFile(packed)
    content = packed.read_bytes()
    assert content.startswith(MAGIC)
    parts = json.loads(content[len(MAGIC) : ALIGNMENT])["parts"]
    assert list(parts) == [name for name in PARTS if directory.has(name)]
    for name, part in parts.items():
        assert part["offset"] % ALIGNMENT == 0
        assert file.read(name) == directory.read(name)
        assert file.digest(name) == directory.digest(name)
    assert len(content) % ALIGNMENT == 0


def test_a_packed_file_is_a_models_name(packed: Path, checkpoints: dict[str, Path]) -> None:
    resolved = resolve(str(packed))
    assert (resolved.model_id, resolved.path, resolved.revision) == ("some model", packed, "")
    asked = {"state": "It is late.", "questions": {"q": {"type": "noul", "instructions": "Is it late?"}}}
    with Kime.open(packed) as one, Kime.open(checkpoints["bert"]) as other:
        assert one.model_id == "some model"
        assert one.digest() == other.digest()
        assert one.decide(asked)["q"] == other.decide(asked)["q"]


def test_a_packed_file_can_be_packed_again(packed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.kime"
    pack(packed, again)
    assert again.read_bytes() == packed.read_bytes()


def test_packing_in_place_leaves_the_old_file_to_those_who_have_it_open(packed: Path) -> None:
    before = packed.read_bytes()
    opened = PackedFile(packed)
    pack(packed, packed)
    assert opened.read(WEIGHTS_FILE) == PackedFile(packed).read(WEIGHTS_FILE)
    assert packed.read_bytes() == before


def test_a_digest_is_of_what_is_open(packed: Path, checkpoints: dict[str, Path]) -> None:
    with Kime.open(packed) as kime:
        pack(checkpoints["modernbert"], packed)
        assert kime.digest() == Directory(checkpoints["bert"]).digest(WEIGHTS_FILE)


def test_what_is_no_checkpoint_is_not_packed_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "rl_agent_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"encoder/config\.json, .*model\.safetensors missing"):
        pack(tmp_path / "half", tmp_path / "half.kime")
    with pytest.raises(ModelError, match="neither a directory nor"):
        pack(tmp_path / "nowhere", tmp_path / "half.kime")
    assert [path.name for path in tmp_path.iterdir()] == ["half"]


def test_a_failed_write_leaves_the_old_file(
    packed: Path, checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packed.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pack(checkpoints["modernbert"], packed)
    assert packed.read_bytes() == before
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]


def _header(content: bytes, change: Callable[[dict[str, dict[str, int]]], None]) -> bytes:
    values = json.loads(content[len(MAGIC) : ALIGNMENT])
    change(values["parts"])
    return (MAGIC + json.dumps(values).encode()).ljust(ALIGNMENT) + content[ALIGNMENT:]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda _: b"", "is no .kime file"),
        (lambda _: b"GGUF" + b"\0" * 9000, "is no .kime file"),
        (lambda content: b"KIME\x02" + content[5:], "is of version 2 of the format; this program reads 1"),
        (lambda content: content[:100], "has a header that cannot be read"),
        (lambda _: MAGIC + b"[]".ljust(5000), "has a header that cannot be read"),
        (lambda _: MAGIC + b'{"parts": {"a": 1}}'.ljust(5000), "has a header that cannot be read"),
        (lambda _: MAGIC + b"[" * 4091, "has a header that cannot be read"),
        (lambda content: content[:-ALIGNMENT], "is cut off: model.safetensors ends at byte"),
        (
            lambda content: _header(content, lambda parts: parts[WEIGHTS_FILE].update(offset=17)),
            "puts model.safetensors at 17, which cannot be",
        ),
        (
            lambda content: _header(content, lambda parts: parts[WEIGHTS_FILE].update(size=-1)),
            "which cannot be",
        ),
        (
            lambda content: _header(content, lambda parts: parts.pop(WEIGHTS_FILE)),
            "model.safetensors is missing",
        ),
        (
            lambda content: _header(content, lambda parts: parts.pop("encoder/config.json")),
            "encoder/config.json is missing",
        ),
    ],
)
def test_a_broken_file_says_what_is_wrong(broken: Callable[[bytes], bytes], words: str, packed: Path) -> None:
    packed.write_bytes(broken(packed.read_bytes()))
    with pytest.raises(ModelError, match=re.escape(words)) as refusal:
        Model.open(packed, CPU)
    assert str(packed) in str(refusal.value)


def test_what_is_not_in_a_packed_file_is_not_there(packed: Path) -> None:
    file = open_files(packed)
    assert not file.has("no/file")
    with pytest.raises(FileNotFoundError, match="no/file in "):
        file.read("no/file")


def test_a_file_of_another_kind_is_no_models_name(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(NotFoundError, match="kime-grpc pack"):
        resolve(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_are_views_of_the_file(dtype: torch.dtype, tmp_path: Path) -> None:
    made = {
        "a": torch.arange(6, dtype=dtype).reshape(2, 3),
        "scalar": torch.tensor(3.5, dtype=dtype),
        "none": torch.empty(0, 4, dtype=dtype),
    }
    save_file(made, tmp_path / "x.safetensors", metadata={"format": "pt"})
    content = memoryview(bytearray((tmp_path / "x.safetensors").read_bytes()))
    tensors = MappedTensors(content)
    assert set(tensors.headers) == set(made)
    for name, tensor in made.items():
        found = tensors.tensor(name, dtype)
        assert tensors.headers[name].shape == tuple(tensor.shape)
        assert torch.equal(found, tensor)
    tensors.tensor("a", dtype)[0, 0] = 7
    assert tensors.tensor("a", dtype)[0, 0] == 7  # the same bytes


def test_a_tensor_between_two_places_is_copied() -> None:
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    values = torch.tensor([1.5, -2.0])
    content = len(header).to_bytes(8, "little") + header + b"\0" + values.numpy().tobytes()
    assert torch.equal(MappedTensors(memoryview(bytearray(content))).tensor("a", torch.float32), values)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ('{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}', "takes 8 bytes, which do not make"),
        ('{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}', "no list of sizes"),
        ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}', "no list of sizes"),
        ('{"a":{"dtype":"F32","shape":[400],"data_offsets":[0,1600]}}', "cut off within a"),
        ('{"a":{"dtype":"F32","shape":[2]}}', "not as it should be"),
        ('{"a":7}', "not as it should be"),
        ("[]", "not as it should be"),
        ("{", "Expecting"),
    ],
)
def test_a_wrong_tensor_header_is_refused(header: str, words: str) -> None:
    content = len(header).to_bytes(8, "little") + header.encode() + b"\0" * 8
    with pytest.raises(ValueError, match=words):
        MappedTensors(memoryview(bytearray(content)))


@pytest.mark.parametrize("content", [b"", b"1234567", (1 << 40).to_bytes(8, "little"), b"\xff" * 8])
def test_too_few_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="cut off"):
        MappedTensors(memoryview(bytearray(content)))
