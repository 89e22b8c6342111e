"""The token that a client shows at each connection: a text, or a file that is read anew each time.

A file may be replaced while clients run: the next connection shows the new token. No text of ours has a token
in it: not `repr`, not an error, not a log line.
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
# What `ringfence token create` makes: rf_ and 32 random bytes in base64.
_SHAPE = re.compile(r"\s*rf_[A-Za-z0-9_-]{40,}\s*")


class Token:
    """What to show, or nothing."""

    __slots__ = ("_file", "_text")

    def __init__(self, text: str | None = None, file: Path | None = None) -> None:
        self._text, self._file = text, file

    def __repr__(self) -> str:
        return f"Token(file={str(self._file)!r})" if self._file is not None else "Token()"

    def __reduce__(self) -> str:
        raise TypeError("a token cannot be pickled: name a file, or set RINGFENCE_TOKEN, where it is used")

    def current(self) -> str | None:
        """The token as it is now; None for none.

        Raises:
            ConfigError: the file cannot be read, or what is there cannot be a token.
        """
        if self._file is None:
            return checked(self._text) if self._text else None
        if _SHAPE.fullmatch(str(self._file)) and not self._file.exists():
            # The error below would show it, and Spark would log it with the job.
            raise ConfigError(
                "what is given as a token file looks like a token: name a file that holds it; revoke the "
                "token if it stands in plans or logs now",
                key="token_file",
            )
        try:
            # One more than a token and its line's end may have: what is larger is another file.
            with self._file.open(encoding="utf-8") as file:
                text = file.read(CREDENTIAL_BYTES_MAX + 3)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(f"token file {self._file}: {why}", key="token_file") from None
        if not text.strip():
            raise ConfigError(f"token file {self._file} is empty", key="token_file")
        return checked(text)


def checked(text: str) -> str:
    """A token without what surrounds it. ConfigError says what is wrong with it, and shows nothing of it."""
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("the token has other than printable ASCII characters", key="token")
    if len(token) > CREDENTIAL_BYTES_MAX:
        message = f"the token has {len(token)} characters, at most {CREDENTIAL_BYTES_MAX}"
        raise ConfigError(message, key="token")
    return token


def token_of(text: str | None, file: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Token:
    """What was given: a text, else a file, else RINGFENCE_TOKEN. ConfigError when it cannot be a token."""
    if text is not None and file is not None:
        raise ConfigError("token and token_file: one of them", key="token_file")
    if not isinstance(text, str | None):
        raise ConfigError(f"token is a {type(text).__name__}, it must be a str", key="token")
    if file is not None:
        token = Token(file=Path(file))
    else:
        token = Token(text if text is not None else environment.get(VARIABLE))
    token.current()  # what is wrong with it is said here, not at some later connection
    return token
