"""Whatever a message holds, it gives a request or its problems; and what a client writes reads the same."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kime_grpc.client.writing import decide_request
from kime_grpc.core.errors import InvalidError
from kime_grpc.core.laya_form import parse_request
from kime_grpc.core.rendering import render_question, render_state
from kime_grpc.core.request import CheckedRequest, RequestLimits
from kime_grpc.server.from_wire import Rules, read_request
from kime_grpc.server.status import MAX_WIRE_BYTES, error_status
from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2
from tests.core.strategies import examples, good_questions, json_values, texts

RULES = Rules(RequestLimits(questions=4, options=4, levels=3), max_row_tokens=512)
WIDE_RULES = Rules(RequestLimits(), max_row_tokens=512)
MASK = "[MASK]"


def rendered(request: CheckedRequest) -> Any:
    """What the model reads of a request."""
    return (
        render_state(request.state, MASK),
        isinstance(request.state, list),
        [(q.id, q.type, render_question(q, MASK), q.option_order) for q in request.questions],
        (request.max_len, request.head_max_len, request.cache),
    )


@examples(200)
@given(
    state=json_values.filter(lambda value: value is not None),
    questions=st.lists(good_questions(), max_size=3),
    max_len=st.none() | st.integers(1, 512),
    cache=st.sampled_from(["use", "bypass", "refresh"]),
)
def test_a_request_that_is_sent_reads_as_it_does_in_process(
    state: Any, questions: list[dict[str, Any]], max_len: int | None, cache: str
) -> None:
    form: dict[str, Any] = {
        "state": state,
        "questions": {f"q{i}": question for i, question in enumerate(questions)},
        "kime": {"cache": cache},
    }
    if max_len is not None:
        form["max_len"] = max_len
    here = parse_request(form, RequestLimits(), 512)
    sent = decision_service_pb2.DecideRequest.FromString(decide_request(here, "").SerializeToString())
    assert rendered(read_request(sent, WIDE_RULES)) == rendered(here)


bad_documents = ["null", "{", "1e999", '{"a":1,"a":1}', "[[1]]", "NaN"]
contents = st.one_of(
    st.builds(content_pb2.Content),
    st.builds(content_pb2.Content, text=texts),
    st.builds(content_pb2.Content, json=st.sampled_from(bad_documents)),
)
options = st.builds(question_pb2.ChoiceOption, label=texts, description=st.none() | contents)
orders = st.lists(st.integers(0, 4), max_size=4)
odd_questions = st.one_of(
    st.builds(question_pb2.Question, id=texts, instructions=st.none() | contents, option_order=orders),
    st.builds(
        question_pb2.Question,
        id=texts,
        instructions=contents,
        choice=st.builds(question_pb2.ChoiceQuestion, options=st.lists(options, max_size=6)),
        option_order=orders,
    ),
    st.builds(
        question_pb2.Question,
        id=texts,
        instructions=contents,
        score=st.builds(question_pb2.ScoreQuestion, levels=st.lists(contents, max_size=5)),
        option_order=orders,
    ),
    st.builds(
        question_pb2.Question,
        id=texts,
        instructions=contents,
        noul=st.builds(
            question_pb2.NoulQuestion,
            false_description=st.none() | contents,
            true_description=st.none() | contents,
            labels=st.none() | st.builds(question_pb2.NoulLabels, false_label=texts, true_label=texts),
        ),
        option_order=orders,
    ),
)
odd_requests = st.builds(
    decision_service_pb2.DecideRequest,
    state=st.none() | contents,
    questions=st.lists(odd_questions, max_size=6),
    options=st.none()
    | st.builds(
        decision_service_pb2.DecideOptions,
        max_len=st.integers(0, 2**32 - 1),
        head_max_len=st.integers(0, 600),
        cache_mode=st.integers(0, 7),
    ),
)


def check(message: decision_service_pb2.DecideRequest) -> None:
    """Read it; if it is refused, the refusal fits the trailers and names every problem."""
    try:
        read_request(message, RULES)
    except InvalidError as error:
        refused = error
    else:
        return
    assert refused.problems
    assert all(problem.path and problem.kind and problem.message for problem in refused.problems)
    status = error_status(refused, "request-1").status
    assert len(status.message) + (status.ByteSize() + 2) // 3 * 4 <= MAX_WIRE_BYTES


@examples(300)
@given(odd_requests)
def test_an_odd_request_is_taken_or_refused(message: decision_service_pb2.DecideRequest) -> None:
    check(message)


@examples(300)
@given(odd_requests, st.data())
def test_a_damaged_request_is_taken_or_refused(
    message: decision_service_pb2.DecideRequest, data: st.DataObject
) -> None:
    raw = bytearray(message.SerializeToString() or b"\x0a\x00")
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        damaged = decision_service_pb2.DecideRequest.FromString(bytes(raw))
    except DecodeError:
        return
    check(damaged)
