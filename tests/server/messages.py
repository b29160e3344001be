"""Short ways to write the contract's messages."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from kime_grpc.v1 import content_pb2, decision_service_pb2, question_pb2


def text(value: str) -> content_pb2.Content:
    return content_pb2.Content(text=value)


def json(value: str) -> content_pb2.Content:
    return content_pb2.Content(json=value)


def choice(id: str = "team", labels: tuple[str, ...] = ("billing", "sales")) -> question_pb2.Question:
    options = [question_pb2.ChoiceOption(label=label) for label in labels]
    return question_pb2.Question(
        id=id, instructions=text("Which team?"), choice=question_pb2.ChoiceQuestion(options=options)
    )


def score(id: str = "urgency", levels: tuple[str, ...] = ("can wait", "now")) -> question_pb2.Question:
    return question_pb2.Question(
        id=id, instructions=text("How urgent?"), score=question_pb2.ScoreQuestion(levels=map(text, levels))
    )


def noul(id: str = "refund") -> question_pb2.Question:
    return question_pb2.Question(
        id=id, instructions=text("A refund is asked for."), noul=question_pb2.NoulQuestion()
    )


def request(
    state: str = "It broke.", *questions: question_pb2.Question
) -> decision_service_pb2.DecideRequest:
    return decision_service_pb2.DecideRequest(state=text(state), questions=questions or [choice()])


def item(
    id: str, state: str | None = None, max_wait: float | None = None
) -> decision_service_pb2.DecideStreamRequest:
    """An item whose state is its id, unless told."""
    message = decision_service_pb2.StreamItem(id=id, request=request(id if state is None else state))
    if max_wait is not None:
        wait = Duration()
        wait.FromNanoseconds(int(max_wait * 1e9))
        message.max_wait.CopyFrom(wait)
    return decision_service_pb2.DecideStreamRequest(item=message)


def defaults(*questions: question_pb2.Question) -> decision_service_pb2.DecideStreamRequest:
    return decision_service_pb2.DecideStreamRequest(
        defaults=decision_service_pb2.StreamDefaults(questions=questions)
    )
