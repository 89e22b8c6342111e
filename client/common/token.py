"""The token that a client sends on each connection: a text, or a file that is read for each connection.

A file may be replaced while clients run: the next connection sends the new token. The token appears in no
`repr`, error or log line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.native.errors import ConfigError
from ringfence.native.wire import CREDENTIAL_BYTES_MAX

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

VARIABLE = "RINGFENCE_TOKEN"
# Format of `ringfence token create`: rf_ and 32 random bytes in base64.
_SHAPE = re.compile(r"\s*rf_[A-Za-z0-9_-]{40,}\s*")


class Token:
    """The source of the token, or none."""

    __slots__ = ("_file", "_text")

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        self._text, self._file = text, file

    def __repr__(self) -> str:
        return f"Token(file={str(self._file)!r})" if self._file is not None else "Token()"

    def __reduce__(self) -> str:
        raise TypeError(
            "a token cannot be pickled: name a file, or set RINGFENCE_TOKEN, in the other process"
        )

    def current(self) -> str | None:
        """The current token; None: no token is used.

        Raises:
            ConfigError: the file cannot be read, or its content cannot be a token.
        """
        if self._file is None:
            return checked(self._text) if self._text else None
        if _SHAPE.fullmatch(str(self._file)) and not self._file.exists():
            # The error below would contain it, and Spark would log it with the job.
            raise ConfigError(
                "the name of the token file looks like a token: name a file that contains it; revoke the "
                "token if it is in plans or logs now",
                key="token_file",
            )
        try:
            # One byte more than a token with a line end may have: a larger file cannot be a token file.
            with self._file.open(encoding="utf-8") as file:
                text = file.read(CREDENTIAL_BYTES_MAX + 3)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"token file {self._file}: {why}", key="token_file") from None
        if not text.strip():
            raise ConfigError(f"token file {self._file} is empty", key="token_file")
        return checked(text)


def checked(text: str) -> str:
    """The token without white space. Raises ConfigError, which does not contain the token."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("the token must consist of printable ASCII characters", key="token")
    if len(token) > CREDENTIAL_BYTES_MAX:
        message = f"the token has {len(token)} characters, at most {CREDENTIAL_BYTES_MAX} are allowed"
        raise ConfigError(message, key="token")
    return token


def token_of(text: str | None, file: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Token:
    """A token of a text, else a file, else RINGFENCE_TOKEN. Raises ConfigError if it is invalid."""
    if text is not None and file is not None:
        raise ConfigError("token and token_file exclude each other; pass one of them", key="token_file")
    if not isinstance(text, str | None):
        raise ConfigError(f"token must be a str, not a {type(text).__name__}", key="token")
    if file is not None:
        token = Token(file=Path(file))
    else:
        token = Token(text if text is not None else environment.get(VARIABLE))
    token.current()  # raises here instead of at the first connection
    return token
