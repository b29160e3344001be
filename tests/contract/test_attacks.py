"""What a client can do to a server without meaning well, and what must not come of it."""

from __future__ import annotations

import asyncio
import logging
import sys

import grpc
import pytest

from tests.contract.wire import Wire

# Whether the server hears in time is a race, so it is run often, and from a process of its own: within one,
# gRPC tells both sides at once.
REFUSES_ITS_ANSWERS = """
import sys, grpc
from kime_grpc.v1 import decision_service_pb2_grpc
from tests.server.messages import choice, request
channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_receive_message_length", 4 << 20)])
stub = decision_service_pb2_grpc.DecisionServiceStub(channel)
for _ in range(40):
    try:
        stub.Decide(request("It broke.", choice(labels=("x" * 2_500_000,))), timeout=60)
    except grpc.RpcError as error:
        print(error.code().name)
"""


async def test_a_client_that_refuses_its_answers_leaves_no_traceback_in_the_log(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REFUSES_ITS_ANSWERS, wire.server.address, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await client.communicate()
    assert said.split() == [b"RESOURCE_EXHAUSTED"] * 40
    await wire.is_idle()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_what_else_the_library_says_stays_in_the_log(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    library = logging.getLogger("grpc._cython.cygrpc")
    library.error("the client left", exc_info=grpc.aio.InternalError("a send failed"))
    library.error("the handler broke", exc_info=ValueError("a bug"))
    library.error("a word")
    assert [record.getMessage() for record in caplog.records] == ["the handler broke", "a word"]
