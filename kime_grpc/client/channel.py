"""How a channel is opened: target, TLS, token, and the options with the service config beside this file."""

from __future__ import annotations

import importlib.resources
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio

from kime_grpc import __version__
from kime_grpc.client.errors import REQUEST_ID

Metadata: TypeAlias = tuple[tuple[str, str], ...]
ChannelOptions: TypeAlias = Sequence[tuple[str, Any]]

DEFAULT_PORT = 50051
MAX_RECEIVE_BYTES = 64 * 1024 * 1024
# Servers that know nothing of us take a ping every five minutes; more often, and they hang up.
_KEEPALIVE_MS = 300_000
_KEEPALIVE_TIMEOUT_MS = 20_000
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TOKEN = re.compile(r"[!-~]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
# `localhost:50051` looks like a scheme too, so only these are ones.
_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p")


def service_config() -> dict[str, Any]:
    """The service config for clients of any language: balancing, health checking, timeouts and retries."""
    text = importlib.resources.files(__package__).joinpath("service_config.json").read_text(encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return config


@dataclass(frozen=True, slots=True)
class Tls:
    """How a connection is secured. Each part is PEM: bytes, or the path of a file.

    Attributes:
        ca: the authorities that may sign the server's certificate; None for gRPC's own list.
        certificate: this client's certificate chain, where the server asks for one; needs `key`.
        key: the certificate's private key.
        server_name: the name that the server's certificate must have, if it is not the target's host.
    """

    ca: bytes | str | Path | None = None
    certificate: bytes | str | Path | None = None
    key: bytes | str | Path | None = field(default=None, repr=False)
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together: give both, or none")

    def credentials(self) -> grpc.ChannelCredentials:
        """This in gRPC's form. Raises OSError for a file that cannot be read."""
        return grpc.ssl_channel_credentials(_pem(self.ca), _pem(self.key), _pem(self.certificate))


@dataclass(frozen=True, slots=True)
class Connection:
    """What both clients connect with; checks itself.

    Attributes:
        target: where the server is, in gRPC's terms: `host:port`, `dns:///host:port`, `unix:/path`; a bare
            host has port 50051.
        token: sent with every call as `authorization: Bearer ...`.
        tls: how the connection is secured; None for plaintext.
        plaintext_token: send the token over plaintext to other machines too.
        options: gRPC channel options that replace the usual ones of the same name.
    """

    target: str
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    plaintext_token: bool = False
    options: ChannelOptions = ()

    def __post_init__(self) -> None:
        if not self.target.strip():
            raise ValueError("the target is empty; give host:port")
        if self.token is None:
            return
        if not _TOKEN.fullmatch(self.token):
            raise ValueError("a token is printable ASCII without spaces, and not empty")
        if self.tls is None and not self.plaintext_token and not is_loopback(self.target):
            raise ValueError(
                f"the token would travel to {self.target} unencrypted, for all to read: pass tls=Tls(), or "
                "plaintext_token=True where something else secures the way"
            )

    def open(self) -> grpc.Channel:
        """A channel for `Client`."""
        if self.tls is None:
            return grpc.insecure_channel(with_port(self.target), options=self._options())
        return grpc.secure_channel(with_port(self.target), self.tls.credentials(), options=self._options())

    def open_async(self) -> grpc.aio.Channel:
        """A channel for `AsyncClient`; belongs to the running event loop."""
        if self.tls is None:
            return grpc.aio.insecure_channel(with_port(self.target), options=self._options())
        return grpc.aio.secure_channel(
            with_port(self.target), self.tls.credentials(), options=self._options()
        )

    def metadata(self, request_id: str | None) -> Metadata:
        """What every call carries. Raises ValueError for a request id that a server would not take."""
        entries = []
        if self.token is not None:
            entries.append(("authorization", f"Bearer {self.token}"))
        if request_id is not None:
            if not _REQUEST_ID.fullmatch(request_id):
                raise ValueError("a request id is 1 to 128 characters of letters, digits and ._:-")
            entries.append((REQUEST_ID, request_id))
        return tuple(entries)

    def _options(self) -> list[tuple[str, Any]]:
        config = service_config()
        for methods in config["methodConfig"]:
            # The client gives every call a deadline of its own; the shipped one would cut a longer one short.
            methods.pop("timeout", None)
        options: dict[str, Any] = {
            "grpc.service_config": json.dumps(config),
            "grpc.primary_user_agent": f"kime-grpc/{__version__}",
            "grpc.max_receive_message_length": MAX_RECEIVE_BYTES,
            "grpc.keepalive_time_ms": _KEEPALIVE_MS,
            "grpc.keepalive_timeout_ms": _KEEPALIVE_TIMEOUT_MS,
        }
        if is_loopback(self.target):
            # This machine is not behind the proxy that the environment names.
            options["grpc.enable_http_proxy"] = 0
        if self.tls is not None and self.tls.server_name is not None:
            options["grpc.ssl_target_name_override"] = self.tls.server_name
        return list((options | dict(self.options)).items())


def with_port(target: str) -> str:
    """A bare host with the usual port of a server, where gRPC would take 443; other targets as they are."""
    if target.count(":") > 1 and not target.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(target)}]:{DEFAULT_PORT}"
        except ValueError:
            return target
    is_bare = target.endswith("]") if target.startswith("[") else not set(":/") & set(target)
    return f"{target}:{DEFAULT_PORT}" if is_bare else target


def is_loopback(target: str) -> bool:
    """Whether a gRPC target surely stays on this machine."""
    scheme, rest = "dns", target
    match = _SCHEME.fullmatch(target)
    if match and match[1].lower() in _SCHEMES:
        scheme, rest = match[1].lower(), match[2]
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme == "dns" and rest.startswith("//"):
        # `dns://authority/host:port`: the authority is a name server, which may say anything.
        authority, _, rest = rest[2:].partition("/")
        if authority:
            return False
    elif scheme not in ("dns", "ipv4", "ipv6"):
        return False
    return all(_is_loopback_host(_host(unquote(address))) for address in rest.split(","))


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.rpartition(":")[0] if address.count(":") == 1 else address


def _is_loopback_host(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _pem(part: bytes | str | Path | None) -> bytes | None:
    return part if part is None or isinstance(part, bytes) else Path(part).read_bytes()
