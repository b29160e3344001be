from __future__ import annotations

import dataclasses

import pytest

from kime_grpc.server.settings import ServerSettings, address


def test_the_defaults_are_valid() -> None:
    assert ServerSettings().port == 50051


def test_every_problem_is_listed_by_the_setting_s_name() -> None:
    with pytest.raises(ValueError, match=r"settings") as caught:
        ServerSettings(port=70_000, host=" ", max_questions=0, grace_seconds=-1)
    for name in (
        "port must be at most 65535",
        "host must be a text",
        "max_questions must be",
        "grace_seconds",
    ):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": "50051"},
        {"port": 1.5},
        {"port": True},
        {"port": -1},
        {"host": None},
        {"model": ""},
        {"model": 3},
        {"device": ""},
        {"answer_cache": -1},
        {"max_message_bytes": 2**31},
        {"max_message_bytes": 10},
        {"lame_duck_seconds": float("nan")},
        {"grace_seconds": float("inf")},
        {"grace_seconds": "20"},
        {"stream_items": 0},
        {"stream_bytes": 0},
        {"question_cache_bytes": -1},
        {"watchdog_seconds": 0},
        {"watchdog_seconds": 1e300},
        {"metrics_host": ""},
        {"metrics_port": 65_536},
        {"max_calls": 0},
        {"max_streams": 0},
        {"max_bytes_in_flight": 0},
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        ServerSettings(**wrong)  # type: ignore[arg-type]


def test_a_whole_number_of_seconds_is_taken() -> None:
    assert ServerSettings(grace_seconds=3).grace_seconds == 3


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="colour"):
        ServerSettings(colour="red")  # type: ignore[call-arg]


def test_every_setting_is_documented() -> None:
    assert all(len(field.metadata["doc"]) > 20 for field in dataclasses.fields(ServerSettings))


def test_the_limits_are_passed_on() -> None:
    limits = ServerSettings(max_questions=1, max_options=2, max_levels=3, max_request_tokens=4).request_limits
    assert (limits.questions, limits.options, limits.levels, limits.tokens) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "127.0.0.1:1"), ("::", "[::]:1"), ("[::1]", "[::1]:1"), ("localhost", "localhost:1")],
)
def test_an_address_puts_brackets_around_ipv6(host: str, expected: str) -> None:
    assert address(host, 1) == expected
