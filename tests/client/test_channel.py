"""What a client connects with: targets, tokens, TLS and the service config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kime_grpc import AsyncClient, CallError, Client, Noul, Tls
from kime_grpc.client import service_config
from kime_grpc.client.channel import is_loopback, with_port
from kime_grpc.v1 import decision_service_pb2 as pb
from kime_grpc.v1.decision_service_pb2_grpc import DecisionServiceStub
from tests.client.fake import Server, info, refuse, response

QUESTIONS = {"q": Noul("So.")}


@pytest.mark.parametrize(
    "target",
    [
        "localhost:50051",
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:50051",
        "127.8.8.8:1",
        "[::1]:50051",
        "::1",
        "dns:localhost:1",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1,127.0.0.2:1",
        "ipv6:[::1]:1",
        "ipv6:%5B::1%5D:1",
        "unix:/run/kime.sock",
        "unix:///run/kime.sock",
        "unix-abstract:kime",
    ],
)
def test_these_targets_stay_on_this_machine(target: str) -> None:
    assert is_loopback(target)


@pytest.mark.parametrize(
    "target",
    [
        "example.com:50051",
        "localhost.example.com:1",
        "10.0.0.1:50051",
        "0.0.0.0:1",
        "[2001:db8::1]:1",
        "dns:///example.com:1",
        "dns://192.0.2.1/localhost:1",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "xds:///localhost",
        "vsock:1:2",
    ],
)
def test_these_targets_may_leave_this_machine(target: str) -> None:
    assert not is_loopback(target)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_token_is_not_sent_in_the_open(kind: Any) -> None:
    with pytest.raises(ValueError, match="unencrypted"):
        kind("example.com:50051", token="secret")


def test_a_token_goes_in_the_open_where_the_caller_insists() -> None:
    Client("example.com:50051", token="secret", plaintext_token=True).close()


def test_a_token_goes_over_tls() -> None:
    Client("example.com:50051", token="secret", tls=Tls()).close()


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ü"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        Client("localhost:1", token=token)


@pytest.mark.parametrize(
    ("target", "full"),
    [
        ("localhost", "localhost:50051"),
        ("127.0.0.1", "127.0.0.1:50051"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("localhost:80", "localhost:80"),
        ("[::1]:80", "[::1]:80"),
        ("dns:///localhost", "dns:///localhost"),
        ("dns:localhost", "dns:localhost"),
        ("unix:/a", "unix:/a"),
        ("ipv4:127.0.0.1:1,127.0.0.1:2", "ipv4:127.0.0.1:1,127.0.0.1:2"),
        ("ipv6:[::1]:80", "ipv6:[::1]:80"),
    ],
)
def test_a_bare_host_has_the_usual_port(target: str, full: str) -> None:
    assert with_port(target) == full


def test_an_empty_target_is_refused() -> None:
    with pytest.raises(ValueError, match="target is empty"):
        Client(" ")


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ValueError, match="go together"):
        Tls(certificate=b"pem")


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(Tls(certificate=b"pem", key=b"hush"))


def test_a_certificate_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ca\.pem"):
        Client("localhost:1", tls=Tls(ca=tmp_path / "ca.pem"))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(authority: trustme.CA) -> Iterator[Server]:
    """A server that wants a certificate of its clients, too."""
    certificate = authority.issue_cert("kime.test")
    credentials = grpc.ssl_server_credentials(
        [(certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    with Server(credentials) as running:
        yield running


def client_tls(authority: trustme.CA, folder: Path | None = None) -> Tls:
    mine = authority.issue_cert("client@kime.test")
    parts: dict[str, Any] = {
        "ca": authority.cert_pem.bytes(),
        "certificate": mine.cert_chain_pems[0].bytes(),
        "key": mine.private_key_pem.bytes(),
    }
    if folder is not None:
        for name, part in parts.items():
            (folder / name).write_bytes(part)
            parts[name] = folder / name
    return Tls(**parts, server_name="kime.test")


def test_both_sides_show_certificates(tls_server: Server, authority: trustme.CA) -> None:
    with Client(tls_server.target, tls=client_tls(authority), token="secret") as client:
        assert client.decide("text", QUESTIONS).model == "fake"
    assert tls_server.fake.metadata[0]["authorization"] == "Bearer secret"


async def test_an_async_client_reads_certificates_from_files(
    tls_server: Server, authority: trustme.CA, tmp_path: Path
) -> None:
    async with AsyncClient(tls_server.target, tls=client_tls(authority, tmp_path)) as client:
        assert (await client.decide("text", QUESTIONS)).model == "fake"


def test_a_server_of_another_authority_is_not_trusted(tls_server: Server, authority: trustme.CA) -> None:
    stranger = client_tls(trustme.CA())
    with (
        Client(tls_server.target, tls=stranger, timeout=10) as client,
        pytest.raises(CallError) as caught,
    ):
        client.decide("text", QUESTIONS)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert tls_server.fake.seen == []


def stock_channel(target: str) -> grpc.Channel:
    """A channel as someone without our client opens it, with the shipped service config."""
    return grpc.insecure_channel(target, options=[("grpc.service_config", json.dumps(service_config()))])


def test_every_method_but_the_stream_has_a_timeout() -> None:
    timeouts = {
        name["method"]: methods.get("timeout")
        for methods in service_config()["methodConfig"]
        for name in methods["name"]
    }
    assert timeouts == {
        "Decide": "30s",
        "Embed": "30s",
        "CountTokens": "30s",
        "ListModels": "30s",
        "GetModel": "30s",
        "DecideStream": None,
    }


@pytest.mark.parametrize(
    ("code", "reason"),
    [(grpc.StatusCode.UNAVAILABLE, "DRAINING"), (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")],
)
def test_a_stock_client_tries_again_after_pushback(
    server: Server, code: grpc.StatusCode, reason: str
) -> None:
    tries = []

    def third_time(request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        tries.append(dict(context.invocation_metadata()).get("grpc-previous-rpc-attempts"))
        if len(tries) < 3:
            refuse(context, code, "not now", info(reason), pushback_ms=1)
        return response(request.questions)

    server.fake.on_decide = third_time
    with stock_channel(server.target) as channel:
        assert DecisionServiceStub(channel).Decide(pb.DecideRequest(), timeout=20).model == "fake"
    assert tries == [None, "1", "2"]


async def test_an_async_client_tries_again_after_pushback(async_client: AsyncClient, server: Server) -> None:
    tries = []

    def second_time(request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        tries.append(1)
        if len(tries) < 2:
            refuse(context, grpc.StatusCode.UNAVAILABLE, "not now", info("DRAINING"), pushback_ms=1)
        return response(request.questions)

    server.fake.on_decide = second_time
    assert (await async_client.decide("text", QUESTIONS)).model == "fake"
    assert len(tries) == 2


def test_many_callers_refused_twice_all_succeed(server: Server) -> None:
    tries: dict[str, int] = {}

    def third_time(request: pb.DecideRequest, context: Any) -> pb.DecideResponse:
        tries[request.state.text] = tries.get(request.state.text, 0) + 1
        if tries[request.state.text] < 3:
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "not now", info("OVERLOADED"), pushback_ms=1)
        return response(request.questions)

    server.fake.on_decide = third_time
    with stock_channel(server.target) as channel:
        decide = DecisionServiceStub(channel).Decide
        under_way = [decide.future(pb.DecideRequest(state={"text": str(i)}), timeout=30) for i in range(64)]
        assert [call.result().model for call in under_way] == ["fake"] * 64


def test_a_server_that_says_it_is_not_serving_gets_no_calls() -> None:
    running = Server()
    standing = health.HealthServicer()
    standing.set("kime.v1.DecisionService", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(standing, running._server)
    with running, Client(running.target, timeout=10) as client:
        with pytest.raises(CallError) as caught:
            client.decide("text", QUESTIONS)
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        assert running.fake.seen == []
        standing.enter_graceful_shutdown()


def test_nobody_at_the_target_is_an_error_soon() -> None:
    with Client("127.0.0.1:1", timeout=20) as client, pytest.raises(CallError) as caught:
        client.decide("text", QUESTIONS)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert caught.value.reason == ""
