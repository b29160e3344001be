"""The commands against a server with made-up answers, and what they say when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from kime_grpc import __version__
from tests.cli.conftest import Run
from tests.client.fake import Server, info, refuse

ASK = (
    "--choice",
    "team=Which team?|billing|sales",
    "--noul",
    "so=It is so.",
    "--score",
    "mood=How?|bad|good",
)


def line(state: Any, **more: Any) -> str:
    questions = {"so": {"type": "noul", "instructions": "It is so."}}
    return json.dumps({"state": state, "questions": questions, **more}) + "\n"


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").output == f"kime-grpc {__version__}\n"


@pytest.mark.parametrize(
    "command", ["demo", "serve", "decide", "embed", "count-tokens", "pull", "pack", "doctor", "bench"]
)
def test_every_command_explains_itself(run: Run, command: str) -> None:
    said = run(command, "--help")
    assert said.exit_code == 0
    assert f"kime-grpc {command}" in said.output


def test_an_answer_is_readable(run: Run, server: Server) -> None:
    said = run("decide", "--target", server.target, "I was charged twice.", *ASK)
    assert said.exit_code == 0
    for part in ("team", "Which team?", "→ sales", "50.0%", "mood", "0 bad", "50.0% that it holds", "fake"):
        assert part in said.output


@pytest.mark.parametrize(
    ("form", "keys"),
    [
        ("kime", {"model", "revision", "calibration_id", "answers", "usage", "timing"}),
        ("laya", {"model", "answers", "usage"}),
        ("jev", {"model", "answers", "usage"}),
    ],
)
def test_an_answer_is_json_where_a_form_is_named(run: Run, server: Server, form: str, keys: set[str]) -> None:
    said = run("decide", "--target", server.target, "--format", form, "text", *ASK)
    assert json.loads(said.stdout).keys() == keys


def test_a_state_comes_from_stdin(run: Run, server: Server) -> None:
    said = run("decide", "--target", server.target, "--state", "-", "--json", *ASK, stdin='["é"]')
    assert said.exit_code == 0
    seen: Any = server.fake.seen[0]
    assert seen.state.json == '["é"]'


def test_options_reach_the_server(run: Run, server: Server) -> None:
    run(
        "decide",
        "--target",
        server.target,
        "--model",
        "m",
        "--max-len",
        99,
        "--token",
        "secret",
        "text",
        *ASK,
    )
    seen: Any = server.fake.seen[0]
    assert (seen.model, seen.options.max_len) == ("m", 99)
    assert server.fake.metadata[0]["authorization"] == "Bearer secret"


def test_lines_are_answered_in_order(run: Run, server: Server) -> None:
    lines = [line("x", max_len=i + 1) for i in range(50)]
    lines[7] = "nope\n"
    lines[20] = line(None)
    said = run("decide", "--target", server.target, "--jsonl", "--format", "laya", stdin="\n".join(lines))
    answers = [json.loads(answer) for answer in said.stdout.splitlines()]
    assert said.exit_code == 0
    assert len(answers) == 50
    assert [i for i, answer in enumerate(answers) if "error" in answer] == [7, 20]
    assert answers[7]["error"]["reason"] == "MALFORMED"
    assert answers[20]["error"]["problems"][0]["path"] == "state"


def test_lines_have_our_own_form_where_none_is_named(run: Run, server: Server) -> None:
    said = run("decide", "--target", server.target, "--jsonl", stdin=line("text"))
    assert "timing" in json.loads(said.stdout)


def test_no_lines_give_no_answers(run: Run, server: Server) -> None:
    said = run("decide", "--target", server.target, "--jsonl", stdin="")
    assert (said.exit_code, said.stdout) == (0, "")


def test_texts_are_embedded_line_by_line(run: Run, server: Server) -> None:
    said = run("embed", "--target", server.target, "--jsonl", stdin='"four"\n7\n""\nnope\n')
    answers = [json.loads(answer) for answer in said.stdout.splitlines()]
    assert (answers[0], answers[2]) == ([4.0, 0.5], [0.0, 0.5])
    assert [answers[i]["error"]["reason"] for i in (1, 3)] == ["INVALID", "MALFORMED"]


def test_texts_are_embedded_from_the_command_line(run: Run, server: Server) -> None:
    said = run("embed", "--target", server.target, "four", "é")
    assert said.stdout == "[4.0, 0.5]\n[1.0, 0.5]\n"


def test_many_long_texts_go_in_several_calls(run: Run, server: Server) -> None:
    texts = "".join(json.dumps("x" * 300_000) + "\n" for _ in range(5))
    said = run("embed", "--target", server.target, "--jsonl", stdin=texts)
    assert said.stdout.count("300000.0") == 5
    assert len(server.fake.seen) >= 5


def test_tokens_are_counted(run: Run, server: Server) -> None:
    said = run("count-tokens", "--target", server.target, "text", "--noul", "so=It is so.")
    assert json.loads(said.stdout) == {
        "total_tokens": 9,
        "state_tokens": 3,
        "questions": {"so": {"instruction_tokens": 4, "option_tokens": 2}},
    }


def test_tokens_are_counted_line_by_line(run: Run, server: Server) -> None:
    said = run("count-tokens", "--target", server.target, "--jsonl", stdin=line("a") + "[]\n" + line("b"))
    answers = [json.loads(answer) for answer in said.stdout.splitlines()]
    assert [answer.get("total_tokens") for answer in answers] == [9, None, 9]


@pytest.mark.parametrize(
    "arguments",
    [
        ("decide",),
        ("decide", "text"),
        ("decide", *ASK),
        ("decide", "text", "--state", "-", *ASK),
        ("decide", "--local", "--state", "/nowhere", *ASK),
        ("decide", "--local", "--questions", "/nowhere.json", "text"),
        ("decide", "text", "--noul", "no id"),
        ("decide", "text", "--jsonl"),
        ("decide", "--jsonl", "--max-len", "5"),
        ("decide", "--jsonl", "--format", "yaml"),
        ("decide", "text", "--local", "--target", "localhost:1", *ASK),
        ("embed",),
        ("embed", "text", "--jsonl"),
        ("count-tokens", "text", "--jsonl"),
        ("serve", "--threads", "2", "--device", "cuda"),
        ("serve", "--threads", "0"),
        ("nonsense",),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    said = run(*arguments)
    assert said.exit_code == 2
    assert said.stdout == ""
    assert "Usage" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("decide", "--model", "/nowhere", "text", *ASK), "neither a directory"),
        (("decide", "--target", "127.0.0.1:1", "text", *ASK), "kime-grpc serve"),
        (("decide", "--jsonl", "--target", "127.0.0.1:1"), "kime-grpc serve"),
        (("decide", "--target", "example.com:1", "--token", "secret", "text", *ASK), "unencrypted"),
        (("decide", "--cert", "c.pem", "text", *ASK), "go together"),
        (("decide", "--ca", "/nowhere.pem", "text", *ASK), "/nowhere.pem"),
        (("decide", "--target", "localhost:1", "text", "--noul", "so= "), "instructions are empty"),
        (("serve", "--model", "/nowhere"), "neither a directory"),
        (("pull", "/nowhere"), "no model on the hub"),
    ],
)
def test_an_error_is_a_few_lines_and_ends_with_1(run: Run, arguments: tuple[str, ...], words: str) -> None:
    said = run(*arguments, stdin=line("text"))
    assert said.exit_code == 1
    assert said.stdout == ""
    assert said.stderr.startswith("error: ")
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def test_a_port_that_is_taken_is_an_error(run: Run, server: Server) -> None:
    said = run("serve", "--port", server.port)
    assert said.exit_code == 1
    assert f"error: cannot listen on port {server.port}" in said.stderr


def test_a_server_that_refuses_all_ends_the_run(run: Run, server: Server) -> None:
    def refuse_all(_: Any, context: grpc.ServicerContext) -> Any:
        refuse(context, grpc.StatusCode.UNAUTHENTICATED, "who are you?", info("UNAUTHENTICATED"))

    server.fake.on_stream = refuse_all
    said = run("decide", "--target", server.target, "--jsonl", stdin=line("text"))
    assert (said.exit_code, said.stdout) == (1, "")
    assert "who are you?" in said.stderr


def test_problems_are_listed(run: Run, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "questions.json"
    file.write_text('{"a": {"type": "tale"}, "b": {"type": "score", "instructions": "How?"}}')
    said = run("decide", "--target", server.target, "text", "--questions", file)
    assert said.exit_code == 1
    assert 'questions["a"].type' in said.stderr
    assert 'questions["b"].criteria' in said.stderr


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("torch", ("decide", "--local", "text", "--noul", "so=It is so.")),
        ("grpc_health", ("serve",)),
        ("huggingface_hub", ("pull", "laya")),
    ],
)
def test_a_plain_install_says_what_is_missing(missing: str, arguments: tuple[str, ...]) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from kime_grpc.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"error: this needs {missing}, which smaller installs leave out; "
        "install it with: pip install 'kime-grpc[server]'\n"
    )


def test_a_pulled_model_is_shown_with_what_to_type_next(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "multilingual").mkdir()
    (tmp_path / "multilingual" / "rl_agent_config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path))
    said = run("pull", "laya-multilingual")
    assert said.exit_code == 0
    assert f"laya-multilingual is here: {tmp_path / 'multilingual'}" in said.stdout
    assert "kime-grpc serve --model laya-multilingual" in said.stdout


def test_doctor_finds_what_is_here(run: Run, server: Server) -> None:
    said = run("doctor", "--target", server.target)
    assert said.exit_code == 0
    for part in (__version__, "affinity", "oneDNN", "kime-mini", "laya-multilingual", server.target):
        assert part in said.stdout
    assert "All is well." in said.stdout


def test_doctor_says_when_something_is_broken(run: Run, tmp_path: Path) -> None:
    said = run("doctor", "--model", tmp_path)
    assert said.exit_code == 1
    assert "✗" in said.stdout


def test_doctor_finds_a_server_that_was_named_and_is_not_there_broken(run: Run) -> None:
    said = run("doctor", "--target", "127.0.0.1:1")
    assert said.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-questions", "0"), "--max-questions must be at least 1, not 0"),
        (("--port", "70000", "--grace-seconds", "-1"), "--grace-seconds must be at least 0, not -1.0"),
        (("--port", "70000", "--grace-seconds", "-1"), "--port must be at most 65535, not 70000"),
    ],
)
def test_a_setting_out_of_its_range_is_named_as_it_was_typed(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    said = run("serve", *arguments)
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.replace("│", " ").split())
