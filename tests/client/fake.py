"""A server with made-up answers: every option is as likely as the next. Plain functions set its behaviour."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Self

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from kime_grpc.v1 import answer_pb2, model_service_pb2, question_pb2
from kime_grpc.v1 import decision_service_pb2 as pb
from kime_grpc.v1.decision_service_pb2_grpc import (
    DecisionServiceServicer,
    add_DecisionServiceServicer_to_server,
)
from kime_grpc.v1.model_service_pb2_grpc import ModelServiceServicer, add_ModelServiceServicer_to_server


def answer(question: question_pb2.Question) -> answer_pb2.Answer:
    message = answer_pb2.Answer(
        question_id=question.id,
        entropy_confidence=0.1,
        margin_confidence=0.2,
        answer_confidence=0.3,
        act_probability=0.4,
    )
    if question.HasField("choice"):
        labels = [option.label for option in question.choice.options]
        message.choice.CopyFrom(
            answer_pb2.ChoiceAnswer(
                label=labels[-1],
                index=len(labels) - 1,
                labels=labels,
                probabilities=[1 / len(labels)] * len(labels),
            )
        )
    elif question.HasField("score"):
        levels = [level.text or level.json for level in question.score.levels]
        message.score.CopyFrom(
            answer_pb2.ScoreAnswer(
                value=(len(levels) - 1) / 2, levels=levels, probabilities=[1 / len(levels)] * len(levels)
            )
        )
    else:
        message.noul.CopyFrom(
            answer_pb2.NoulAnswer(probability=0.5, labels=["false", "true"], probabilities=[0.5, 0.5])
        )
    return message


def response(questions: Any) -> pb.DecideResponse:
    return pb.DecideResponse(
        model="fake",
        revision="r1",
        calibration_id="none",
        answers=[answer(question) for question in questions],
        usage=answer_pb2.Usage(input_tokens=7, state_tokens=3),
    )


def status(code: grpc.StatusCode, message: str, *details: Message) -> status_pb2.Status:
    made = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        made.details.add().Pack(detail)
    return made


def refuse(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    message: str,
    *details: Message,
    pushback_ms: int | None = None,
    request_id: str | None = None,
) -> None:
    """End a call the way that the real server does: details and pushback in the trailers."""
    trailers: list[tuple[str, Any]] = [
        ("grpc-status-details-bin", status(code, message, *details).SerializeToString())
    ]
    if pushback_ms is not None:
        trailers.append(("grpc-retry-pushback-ms", str(pushback_ms)))
    if request_id is not None:
        trailers.append(("x-request-id", request_id))
    context.set_trailing_metadata(tuple(trailers))
    context.abort(code, message)


def info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="kime-grpc", metadata=metadata)


class Fake(DecisionServiceServicer, ModelServiceServicer):
    """What the server does. Replace a function to change it; `seen` has every message of unary calls."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.metadata: list[dict[str, Any]] = []
        self.time_remaining: list[float | None] = []
        self.on_decide: Callable[[pb.DecideRequest, Any], pb.DecideResponse | None] = lambda r, _: response(
            r.questions
        )
        self.on_stream: Callable[
            [Iterator[pb.DecideStreamRequest], Any], Iterator[pb.DecideStreamResponse]
        ] = lambda messages, _: echo(messages)

    def _see(self, message: Message | None, context: Any) -> None:
        if message is not None:
            self.seen.append(message)
        self.metadata.append(dict(context.invocation_metadata()))
        self.time_remaining.append(context.time_remaining())

    def Decide(self, request: Any, context: Any) -> Any:
        self._see(request, context)
        return self.on_decide(request, context)

    def DecideStream(self, request_iterator: Any, context: Any) -> Any:
        self._see(None, context)
        yield from self.on_stream(request_iterator, context)

    def Embed(self, request: Any, context: Any) -> Any:
        self._see(request, context)
        return pb.EmbedResponse(
            model="fake", embeddings=[pb.Embedding(values=[len(text), 0.5]) for text in request.texts]
        )

    def CountTokens(self, request: Any, context: Any) -> Any:
        self._see(request, context)
        return pb.CountTokensResponse(
            model="fake",
            total_tokens=3 + 6 * len(request.questions),
            state_tokens=3,
            questions=[
                pb.QuestionTokens(question_id=q.id, instruction_tokens=4, option_tokens=2)
                for q in request.questions
            ],
        )

    def ListModels(self, request: Any, context: Any) -> Any:
        self._see(request, context)
        return model_service_pb2.ListModelsResponse(models=[MODEL])

    def GetModel(self, request: Any, context: Any) -> Any:
        self._see(request, context)
        return model_service_pb2.GetModelResponse(model=MODEL)


MODEL = model_service_pb2.Model(
    id="fake",
    family="bert",
    digest="sha256:00",
    limits=model_service_pb2.ModelLimits(max_len=384, head_max_len=128, questions=256, stream_items=32),
    precision="f32",
    device="cpu, 1 thread, f32",
    features=["decide", "embed"],
    calibration_id="none",
    is_default=True,
)


def echo(messages: Iterator[pb.DecideStreamRequest]) -> Iterator[pb.DecideStreamResponse]:
    """Answer every item of a stream as it comes."""
    defaults: Any = ()
    for message in messages:
        if message.HasField("defaults"):
            defaults = message.defaults.questions
            continue
        item = message.item
        yield pb.DecideStreamResponse(id=item.id, response=response(item.request.questions or defaults))


class Server:
    """A `Fake` behind a real socket."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.fake = Fake()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16, thread_name_prefix="fake"), options=(("grpc.so_reuseport", 0),)
        )
        add_DecisionServiceServicer_to_server(self.fake, self._server)
        add_ModelServiceServicer_to_server(self.fake, self._server)
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self.stopping = threading.Event()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.stop(0).wait()
