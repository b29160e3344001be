"""How a command ends when it does not get to its end: a few lines on stderr and an exit status, no traceback.

0    done
1    an error: the model, the server or the request
2    the command line is wrong
130  interrupted
141  whoever read the output went away
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec

import grpc
import typer

from kime_grpc.cli.forms import printable
from kime_grpc.client import CallError
from kime_grpc.core.errors import InvalidError, KimeError

_P = ParamSpec("_P")

INTERRUPTED = 130
NOBODY_READS = 141

# What smaller installs leave out, by the modules' top names.
_OF_THE_TRAIN_EXTRA = frozenset({"matplotlib", "transformers"})
_OF_THE_SERVER_EXTRA = frozenset(
    {
        "cachetools",
        "grpc_health",
        "grpc_reflection",
        "huggingface_hub",
        "kime_mini",
        "numpy",
        "prometheus_client",
        "safetensors",
        "tokenizers",
        "torch",
    }
)


def guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """A command whose expected errors end the process as this module says."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _let_go_of_stdout()
            raise typer.Exit(NOBODY_READS) from None
        except KimeError as error:
            fail(sentences(error))
        except ModuleNotFoundError as error:
            name = (error.name or "").partition(".")[0]
            if name not in _OF_THE_SERVER_EXTRA | _OF_THE_TRAIN_EXTRA:
                raise
            extra = "train" if name in _OF_THE_TRAIN_EXTRA else "server"
            fail(
                f"this needs {name}, which smaller installs leave out; "
                f"install it with: pip install 'kime-grpc[{extra}]'"
            )
        except (OSError, ValueError) as error:
            # Files that are not there, a port that is taken, an option's value.
            fail(str(error))

    return run


def fail(message: str, status: int = 1) -> NoReturn:
    """End the command with lines on stderr."""
    typer.echo(f"error: {printable(message)}", err=True)
    raise typer.Exit(status)


def sentences(error: KimeError) -> str:
    """An error for people: a line, and one for every problem."""
    if isinstance(error, InvalidError):
        count = len(error.problems)
        lines = [f"  {p.path or 'request'}: {p.message}" for p in error.problems]
        return "\n".join([f"the request has {count} problem{'s' if count != 1 else ''}", *lines])
    if isinstance(error, CallError) and error.code is grpc.StatusCode.UNAVAILABLE and not error.reason:
        return f"{error}\nstart a server with kime-grpc serve, or answer in this process with --local"
    return str(error)


def _let_go_of_stdout() -> None:
    # Else the interpreter tries to flush at its end, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
