"""The files of kime-mini, a small decision model, and where they lie."""

from __future__ import annotations

from pathlib import Path

__all__ = ["__version__", "checkpoint_path"]
__version__ = "0.3.0"


def checkpoint_path() -> Path:
    """The checkpoint's directory: `rl_agent_config.json`, `model.safetensors`, `encoder/`, `tokenizer/`."""
    return Path(__file__).parent / "checkpoint"
