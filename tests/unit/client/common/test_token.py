"""The token of a client: where it comes from, what is refused, and that no text shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.common.token import VARIABLE, Token, token_of
from ringfence.native.errors import ConfigError
from ringfence.native.wire import CREDENTIAL_BYTES_MAX

SECRET = "rf_" + "s" * 43


def test_an_argument_goes_before_the_environment_and_a_file_is_read_at_each_use(tmp_path: Path) -> None:
    assert token_of(None, None, {}).current() is None
    assert token_of(None, None, {VARIABLE: f" {SECRET}\n"}).current() == SECRET
    assert token_of("other", None, {VARIABLE: SECRET}).current() == "other"
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    token = token_of(None, file, {VARIABLE: "other"})
    assert token.current() == SECRET
    file.write_text("newer")
    assert token.current() == "newer"


@pytest.mark.parametrize("text", ["ä" * 5, "two words", "tab\there", "x" * (CREDENTIAL_BYTES_MAX + 1)])
def test_a_text_that_is_no_token_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        token_of(text, None, {})
    assert text not in str(caught.value)


def test_two_sources_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        token_of(SECRET, tmp_path / "token", {})


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), (b" \n", "is empty"), (b"\xff\xfe", "it is not text")]
)
def test_a_file_without_a_token_is_refused_by_its_name(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        token_of(None, file, {})
    assert str(file) in str(caught.value)


def test_a_token_in_place_of_a_file_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="looks like a token") as caught:
        token_of(None, SECRET, {})
    assert SECRET not in str(caught.value)


def test_a_token_is_in_no_text_and_in_no_pickle(tmp_path: Path) -> None:
    assert SECRET not in repr(Token(SECRET))
    assert str(tmp_path) in repr(Token(file=tmp_path))
    with pytest.raises(TypeError, match="cannot be pickled"):
        Token(SECRET).__reduce__()
