"""What the contract promises about itself, read from the generated code's descriptors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from google.api import field_behavior_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, MethodDescriptor

from kime_grpc.v1 import answer_pb2, content_pb2, decision_service_pb2, model_service_pb2, question_pb2

FILES: list[FileDescriptor] = [
    module.DESCRIPTOR
    for module in (answer_pb2, content_pb2, decision_service_pb2, model_service_pb2, question_pb2)
]
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.services_by_name.values() for method in service.methods
]


def reachable(message: Descriptor, seen: set[str]) -> Iterator[Descriptor]:
    """The message and those of ours that it is made of."""
    if message.full_name in seen or message.file.package != "kime.v1":
        return
    seen.add(message.full_name)
    yield message
    for field in message.fields:
        if field.message_type is not None:
            yield from reachable(field.message_type, seen)


def request_fields() -> list[FieldDescriptor]:
    seen: set[str] = set()
    return [
        field
        for method in METHODS
        for message in reachable(method.input_type, seen)
        for field in message.fields
        if field.containing_oneof is None
    ]


def test_the_services_have_the_calls_that_v1_promises() -> None:
    assert sorted(method.full_name for method in METHODS) == [
        "kime.v1.DecisionService.CountTokens",
        "kime.v1.DecisionService.Decide",
        "kime.v1.DecisionService.DecideStream",
        "kime.v1.DecisionService.Embed",
        "kime.v1.ModelService.GetModel",
        "kime.v1.ModelService.ListModels",
    ]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_call_may_be_sent_again(method: MethodDescriptor) -> None:
    assert method.GetOptions().idempotency_level == descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS


@pytest.mark.parametrize("field", request_fields(), ids=lambda field: field.full_name)
def test_every_request_field_says_whether_it_is_required(field: FieldDescriptor) -> None:
    behaviors = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    assert list(behaviors) in ([field_behavior_pb2.REQUIRED], [field_behavior_pb2.OPTIONAL])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_registered_under_the_name_that_other_languages_use(file: FileDescriptor) -> None:
    assert file.name.startswith("kime/v1/")


@pytest.mark.parametrize(
    "enum", [enum for file in FILES for enum in file.enum_types_by_name.values()], ids=lambda enum: enum.name
)
def test_zero_means_unspecified_in_every_enum(enum: descriptor_pb2.EnumDescriptorProto) -> None:
    assert enum.values_by_number[0].name.endswith("_UNSPECIFIED")


def test_a_message_survives_pickling() -> None:
    sent = decision_service_pb2.DecideRequest(model="kime-mini")
    assert pickle.loads(pickle.dumps(sent)) == sent  # noqa: S301 - our own bytes
