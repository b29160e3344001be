"""Text to token ids, exactly as the reference's tokenizer class reads the same directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from kime_grpc.core.errors import TokenizerError
from kime_grpc.core.layout import SpecialTokens
from kime_grpc.models.files import (
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    CheckpointFiles,
    open_files,
)

_NEEDED = ("cls_token", "sep_token", "mask_token", "pad_token")
_ROLES = (*_NEEDED, "bos_token", "eos_token", "unk_token")


class TextTokenizer:
    """A checkpoint's tokenizer. Never changed once it is open, so safe from any thread.

    Attributes:
        special: the tokens that frame a row.
        special_count: how many special tokens a text gets when it is embedded.
    """

    special: SpecialTokens
    special_count: int

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens, *, keep_end: bool) -> None:
        """Use `TextTokenizer.open`."""
        self.special = special
        self.special_count = tokenizer.num_special_tokens_to_add(is_pair=False)
        self._tokenizer = tokenizer
        self._cut_side = "left" if keep_end else "right"

    @classmethod
    def open(cls, checkpoint: Path) -> TextTokenizer:
        """Read the tokenizer of a checkpoint directory or of a `.kime` file.

        Raises:
            ModelError: it is neither.
            TokenizerError: a file is missing or broken, or names no token where one is needed.
        """
        return cls.read(open_files(checkpoint))

    @classmethod
    def read(cls, files: CheckpointFiles) -> TextTokenizer:
        """Read a checkpoint's tokenizer.

        Raises:
            TokenizerError: a file is missing or broken, or names no token where one is needed.
        """
        config = _read_object(files, TOKENIZER_CONFIG_FILE)
        tokenizer = _read_tokenizer(files)
        # The file's own cutting and padding are somebody else's settings; only their defaults count.
        truncation, padding = tokenizer.truncation or {}, tokenizer.padding or {}
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = bool(config.get("split_special_tokens", False))
        named, extra, decoder = _tokens_of(files, config)
        if padding:
            named.setdefault("pad_token", padding["pad_token"])
        _add_tokens(tokenizer, [*named.values(), *extra], decoder)
        found = {key: tokenizer.token_to_id(str(named[key])) for key in _NEEDED if key in named}
        ids = {key: id for key, id in found.items() if id is not None}
        if len(ids) < len(_NEEDED):
            missing = [key for key in _NEEDED if key not in ids]
            raise TokenizerError(f"{files.where(TOKENIZER_CONFIG_FILE)} names no {', no '.join(missing)}")
        special = SpecialTokens(
            cls=ids["cls_token"],
            sep=ids["sep_token"],
            mask=ids["mask_token"],
            mask_literal=str(named["mask_token"]),
        )
        side = config.get("truncation_side", truncation.get("direction", "right"))
        return cls(tokenizer, special, keep_end=side == "left")

    def encode(
        self, texts: Sequence[str], most: int, *, keep_first_end: bool = False
    ) -> tuple[list[list[int]], list[int]]:
        """Token ids of each text, without special tokens and unpadded. Releases the GIL.

        Args:
            texts: what to read.
            most: how many ids of each are wanted: making a list of millions holds up every thread.
            keep_first_end: of the first text, the last ids are wanted. Of all others, the first ones are.

        Returns:
            The ids of each text, and how many it has in all.
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        counts = list(map(len, encodings))
        for i, encoding in enumerate(encodings):
            encoding.truncate(most, direction="left" if keep_first_end and i == 0 else "right")
        return [encoding.ids for encoding in encodings], counts

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, without special tokens. Releases the GIL."""
        return list(map(len, self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)))

    def encode_with_special(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Token ids of each text as embeddings read it: framed by special tokens, cut to `max_length` in all.

        Raises:
            ValueError: `max_length` is below `special_count`, so not even the special tokens fit.
        """
        if max_length < self.special_count:
            raise ValueError(f"max_length must be at least {self.special_count}, not {max_length}")
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        for encoding in encodings:
            encoding.truncate(max_length - self.special_count, direction=self._cut_side)
        return [self._tokenizer.post_process(encoding).ids for encoding in encodings]


def _read_tokenizer(files: CheckpointFiles) -> Tokenizer:
    where = files.where(TOKENIZER_FILE)
    if not files.has(TOKENIZER_FILE):
        raise TokenizerError(f"{where} is missing")
    try:
        return Tokenizer.from_buffer(files.read(TOKENIZER_FILE))
    except Exception as error:  # the library raises bare exceptions
        raise TokenizerError(f"{where} cannot be read: {error}") from error


def _read_object(files: CheckpointFiles, file: str) -> dict[str, Any]:
    where = files.where(file)
    try:
        values = json.loads(files.read(file))
    except FileNotFoundError:
        raise TokenizerError(f"{where} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{where} cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise TokenizerError(f"{where} must hold a JSON object")
    return values


_Token = str | AddedToken


def _tokens_of(
    files: CheckpointFiles, config: dict[str, Any]
) -> tuple[dict[str, _Token], list[_Token], dict[int, AddedToken]]:
    """What the configuration names: tokens by role, further special ones, and added ones by their id."""
    file = TOKENIZER_CONFIG_FILE
    try:
        values = dict(config)
        decoder = {int(id): _added(**token) for id, token in values.get("added_tokens_decoder", {}).items()}
        if "added_tokens_decoder" not in values and files.has(SPECIAL_TOKENS_FILE):
            file = SPECIAL_TOKENS_FILE
            for key, value in _read_object(files, file).items():
                if key != "extra_special_tokens":
                    values[key] = _added(**value | {"special": True}) if isinstance(value, dict) else value
                else:
                    values[key] = [*values.get(key, ()), *value] if isinstance(value, list) else value
        extra = values.get("extra_special_tokens") or values.get("additional_special_tokens") or ()
        listed = [_token(value) for value in (extra.values() if isinstance(extra, dict) else extra)]
        named = {key: _token(values[key]) for key in _ROLES if values.get(key) is not None}
        # Families name further tokens, such as image_token; other keys of that ending are settings.
        further = {
            key: value for key, value in values.items() if key.endswith("_token") and key not in _ROLES
        }
        named |= {
            key: _token(value) for key, value in further.items() if isinstance(value, (str, AddedToken, dict))
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise TokenizerError(
            f"{files.where(file)} describes a token in a way that cannot be read: {error}"
        ) from error
    return named, listed, decoder


def _token(value: Any) -> _Token:
    if isinstance(value, dict):
        return _added(**value)
    if isinstance(value, (str, AddedToken)):
        return value
    raise TypeError(f"a token is a text or an object, not {value!r}")


def _added(content: str, **flags: Any) -> AddedToken:
    flags.pop("__type", None)
    return AddedToken(content, **flags)


def _add_tokens(tokenizer: Tokenizer, special: Iterable[_Token], decoder: dict[int, AddedToken]) -> None:
    """Make text that spells a token be read as that token, also where tokenizer.json does not list it."""
    there = set(map(repr, tokenizer.get_added_tokens_decoder().values()))
    add = [token for _, token in sorted(decoder.items()) if repr(token) not in there]
    known = {str(token.content) for token in tokenizer.get_added_tokens_decoder().values()}
    known.update(token.content for token in add)
    for token in special:
        added = AddedToken(token, special=True) if isinstance(token, str) else token
        if added.content not in known:
            added.special = True
            known.add(added.content)
            add.append(added)
    if add:
        tokenizer.add_tokens(add)
