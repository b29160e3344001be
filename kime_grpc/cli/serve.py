"""`kime-grpc serve`: serve a model until a signal comes."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Annotated, Any

import typer

from kime_grpc.server.settings import ServerSettings

_DEFAULTS = ServerSettings()
_DOCS = {field.name: field.metadata["doc"] for field in dataclasses.fields(ServerSettings)}


def _setting(name: str, **more: Any) -> Any:
    return typer.Option(help=_DOCS[name], **more)


def serve(
    *,
    model: Annotated[str | None, _setting("model", show_default=False)] = _DEFAULTS.model,
    host: Annotated[str, _setting("host")] = _DEFAULTS.host,
    port: Annotated[int, _setting("port")] = _DEFAULTS.port,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of the model; short for --device cpu:THREADS.", min=1)
    ] = None,
    device: Annotated[str, _setting("device")] = _DEFAULTS.device,
    precision: Annotated[str, _setting("precision")] = _DEFAULTS.precision,
    answer_cache: Annotated[int, _setting("answer_cache")] = _DEFAULTS.answer_cache,
    question_cache_bytes: Annotated[int, _setting("question_cache_bytes")] = _DEFAULTS.question_cache_bytes,
    watchdog_seconds: Annotated[float, _setting("watchdog_seconds")] = _DEFAULTS.watchdog_seconds,
    max_questions: Annotated[int, _setting("max_questions")] = _DEFAULTS.max_questions,
    max_options: Annotated[int, _setting("max_options")] = _DEFAULTS.max_options,
    max_levels: Annotated[int, _setting("max_levels")] = _DEFAULTS.max_levels,
    max_request_tokens: Annotated[int, _setting("max_request_tokens")] = _DEFAULTS.max_request_tokens,
    max_texts: Annotated[int, _setting("max_texts")] = _DEFAULTS.max_texts,
    max_message_bytes: Annotated[int, _setting("max_message_bytes")] = _DEFAULTS.max_message_bytes,
    stream_items: Annotated[int, _setting("stream_items")] = _DEFAULTS.stream_items,
    stream_bytes: Annotated[int, _setting("stream_bytes")] = _DEFAULTS.stream_bytes,
    max_calls: Annotated[int, _setting("max_calls")] = _DEFAULTS.max_calls,
    max_streams: Annotated[int, _setting("max_streams")] = _DEFAULTS.max_streams,
    max_bytes_in_flight: Annotated[int, _setting("max_bytes_in_flight")] = _DEFAULTS.max_bytes_in_flight,
    metrics_host: Annotated[str, _setting("metrics_host")] = _DEFAULTS.metrics_host,
    metrics_port: Annotated[int, _setting("metrics_port")] = _DEFAULTS.metrics_port,
    lame_duck_seconds: Annotated[float, _setting("lame_duck_seconds")] = _DEFAULTS.lame_duck_seconds,
    grace_seconds: Annotated[float, _setting("grace_seconds")] = _DEFAULTS.grace_seconds,
) -> None:
    """Serve a model over gRPC. SIGTERM and Ctrl-C let what is in flight finish; a second one does not."""
    if threads is not None:
        if device not in ("auto", "cpu"):
            raise typer.BadParameter(
                "--threads are the CPU's; leave out --device, or write --device cpu:THREADS"
            )
        device = f"cpu:{threads}"
    try:
        settings = ServerSettings(
            model=model,
            host=host,
            port=port,
            device=device,
            precision=precision,
            answer_cache=answer_cache,
            question_cache_bytes=question_cache_bytes,
            watchdog_seconds=watchdog_seconds,
            max_questions=max_questions,
            max_options=max_options,
            max_levels=max_levels,
            max_request_tokens=max_request_tokens,
            max_texts=max_texts,
            max_message_bytes=max_message_bytes,
            stream_items=stream_items,
            stream_bytes=stream_bytes,
            max_calls=max_calls,
            max_streams=max_streams,
            max_bytes_in_flight=max_bytes_in_flight,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            lame_duck_seconds=lame_duck_seconds,
            grace_seconds=grace_seconds,
        )
    except ValueError as error:
        raise typer.BadParameter(_in_options(str(error))) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    from kime_grpc.server.lifecycle import serve as run

    run(settings)


def _in_options(said: str) -> str:
    """What the settings say is wrong, with the options' names for the fields'."""
    for name in _DOCS:
        said = re.sub(rf"\b{name}(?= must )", f"--{name.replace('_', '-')}", said)
    return said.removeprefix("settings: ")
