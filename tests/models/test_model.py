"""An open model: what it says of itself, what its outputs are, and which rows it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kime_grpc.core.errors import ModelError
from kime_grpc.core.layout import Row
from kime_grpc.models.model import MAX_ROW_TOKENS, Model
from tests.checkpoints import make_checkpoint
from tests.models.rows import Rows, same_bits

CPU = torch.device("cpu")
MAPS = Path("/proc/self/maps")


@pytest.fixture(scope="module")
def model(checkpoints: dict[str, Path]) -> Model:
    return Model.open(checkpoints["modernbert"], CPU)


@pytest.fixture(scope="module")
def bert(checkpoints: dict[str, Path]) -> Model:
    return Model.open(checkpoints["bert"], CPU)


def test_it_says_what_it_is(model: Model, bert: Model) -> None:
    assert (model.family, bert.family) == ("modernbert", "bert")
    assert model.hidden_size == bert.hidden_size == 64
    assert model.max_row_tokens == MAX_ROW_TOKENS
    assert bert.max_row_tokens == 512
    assert model.device == CPU


def test_weights_are_counted(model: Model, checkpoints: dict[str, Path]) -> None:
    size = (checkpoints["modernbert"] / "model.safetensors").stat().st_size
    assert 0.9 * size < model.weight_bytes < size


@pytest.mark.skipif(not MAPS.exists(), reason="tells mappings from /proc")
def test_float32_weights_are_read_where_the_file_is_mapped(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path)
    model = Model.open(directory, CPU)
    mapped = [
        tuple(int(end, 16) for end in line.split()[0].split("-"))
        for line in MAPS.read_text().splitlines()
        if line.endswith(str(directory / "model.safetensors"))
    ]
    weights = [model._encoder._tok_embeddings, model._head._scorer_hidden.weight]  # type: ignore[attr-defined]
    weights += [layer.Wi_gate.weight for layer in model._encoder._layers]  # type: ignore[attr-defined]
    for weight in weights:
        assert any(start <= weight.data_ptr() < end for start, end in mapped)


def test_plans_are_the_tables_that_rows_so_far_needed(checkpoints: dict[str, Path]) -> None:
    model = Model.open(checkpoints["modernbert"], CPU)
    source = Rows(model)
    assert model.plan_bytes() == 0
    model.forward([source.embedded(10)])
    short = model.plan_bytes()
    model.forward([source.embedded(10)])
    assert model.plan_bytes() == short > 0
    model.forward([source.embedded(1500)])
    assert model.plan_bytes() > short


def test_equal_thetas_share_a_table(checkpoints: dict[str, Path], model: Model) -> None:
    mmbert = Model.open(checkpoints["mmbert"], CPU)
    modernbert = Model.open(checkpoints["modernbert"], CPU)
    for each in (mmbert, modernbert):
        each.forward([Rows(each).embedded(10)])
    assert 2 * mmbert.plan_bytes() == modernbert.plan_bytes()


def test_a_row_with_markers_is_decided_and_one_without_is_embedded(model: Model) -> None:
    source = Rows(model)
    decided, embedded = model.forward([source.decided(options=3, state=20), source.embedded(9)])
    assert (decided.logits.shape, decided.act.shape, decided.embedding) == ((3,), (2,), None)
    assert decided.logits.dtype == decided.act.dtype == np.float32
    assert decided.act.sum() == pytest.approx(1.0)
    assert (embedded.logits.size, embedded.act.size) == (0, 0)
    assert embedded.embedding is not None
    assert (embedded.embedding.shape, embedded.embedding.dtype) == ((64,), np.float32)


def test_outputs_come_in_the_order_of_the_rows(model: Model) -> None:
    source = Rows(model)
    rows = [source.decided(options=k, state=10) if k % 3 else source.embedded(5) for k in range(1, 9)]
    sizes = [output.logits.size for output in model.forward(rows)]
    assert sizes == [k if k % 3 else 0 for k in range(1, 9)]


def test_no_rows_give_no_outputs(model: Model) -> None:
    assert model.forward([]) == []


def test_a_text_without_tokens_is_embedded_as_zeros(model: Model) -> None:
    row = Rows(model).embedded(4)
    empty, full = model.forward([Row(()), row])
    assert empty.embedding is not None
    assert not empty.embedding.any()
    assert same_bits(full, model.forward([row])[0])
    assert model.forward([Row(())])[0].embedding is not None


def test_an_output_does_not_hold_its_batchs_memory(model: Model) -> None:
    source = Rows(model)
    outputs = model.forward([source.decided(options=2, state=5), source.embedded(3)])
    assert outputs[0].logits.base is None
    assert outputs[1].embedding is not None
    assert outputs[1].embedding.nbytes == 64 * 4


def test_a_row_longer_than_the_model_takes_is_refused(bert: Model) -> None:
    source = Rows(bert)
    assert bert.forward([source.embedded(512)])
    with pytest.raises(ValueError, match="513 tokens is longer than 512"):
        bert.forward([source.embedded(513)])


def test_a_token_that_the_model_has_no_vector_for_is_refused(model: Model) -> None:
    with pytest.raises(ModelError, match="token 100000"):
        model.forward([Row((1, 100_000))])


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_stay_in_their_row(poison: float, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path)
    weights = load_file(directory / "model.safetensors")
    weights["encoder.embeddings.tok_embeddings.weight"][600] = poison
    save_file({name: tensor.clone() for name, tensor in weights.items()}, directory / "model.safetensors")
    model = Model.open(directory, CPU)
    source = Rows(model)
    sound, text = source.decided(options=2, state=30), source.embedded(7)
    poisoned = Row((*sound.ids[:-2], 600, sound.ids[-1]), sound.markers, sound.type_index)
    outputs = model.forward([sound, poisoned, Row((*text.ids, 600)), text])
    assert np.isnan(outputs[1].logits).all()
    assert outputs[2].embedding is not None
    assert np.isnan(outputs[2].embedding).all()
    assert np.isfinite(outputs[0].logits).all()
    assert same_bits(outputs[0], model.forward([sound])[0])
    assert same_bits(outputs[3], model.forward([text])[0])


def test_the_type_of_a_question_counts(model: Model) -> None:
    row = Rows(model).decided(options=2, state=10)
    said = [model.forward([Row(row.ids, row.markers, kind)])[0].logits.tolist() for kind in range(3)]
    assert len({tuple(logits) for logits in said}) == 3


def test_half_precision_gives_nearly_the_same(checkpoints: dict[str, Path], model: Model) -> None:
    half = Model.open(checkpoints["modernbert"], CPU, torch.float16)
    assert 2 * half.weight_bytes == model.weight_bytes
    rows = [Rows(model).decided(options=4, state=state) for state in (10, 120)]
    for ours, theirs in zip(half.forward(rows), model.forward(rows), strict=True):
        assert ours.logits.dtype == np.float32
        np.testing.assert_allclose(ours.logits, theirs.logits, atol=0.1)
