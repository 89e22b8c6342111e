"""`ringfence completion`: the scripts, and the words that the program gives them."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import COMMANDS
from tests.harness.processes import PROGRAM, cli

TOPIC = {"create", "list", "show", "truncate", "delete", "layout", "partition"} | {
    "split",
    "merge",
    "repartition",
    "auto",
    "explain",
    "transitions",
    "abort-transition",
}
WORDS = [
    ("ringfence to", {"topic", "token", "top"}),
    ("ringfence topic ", TOPIC),
    ("ringfence topic list --t", {"--timeout", "--token-file"}),
    ("ringfence serve --re", {"--request-ms", "--reserve-bytes"}),
    ("ringfence --v", {"--version"}),
    ("ringfence token create t --role ", {"viewer", "writer", "consumer", "operator", "admin"}),
    ("ringfence noth", set()),
]


@pytest.mark.parametrize(("line", "words"), WORDS)
def test_bash_completes_with_the_script(line: str, words: set[str]) -> None:
    """The script runs as bash runs it: with the words of the line, and the index of the last one."""
    typed = line.split(" ")
    steps = [
        f'eval "$({shlex.quote(str(PROGRAM))} completion bash)"',
        f"COMP_WORDS=({' '.join(map(shlex.quote, typed))})",
        f"COMP_CWORD={len(typed) - 1}",
        f"_ringfence_completion {shlex.quote(str(PROGRAM))}",
        'printf "%s\\n" "${COMPREPLY[@]}"',
        "complete -p ringfence",
    ]
    done = subprocess.run(
        ["bash", "-c", "; ".join(steps)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    *found, registered = done.stdout.splitlines()
    assert set(filter(None, found)) == words
    assert registered == "complete -o nosort -F _ringfence_completion ringfence"


@pytest.mark.parametrize(
    ("shell", "variables", "separator"),
    [
        ("zsh", {"COMP_WORDS": "ringfence ", "COMP_CWORD": "1"}, "\n"),
        ("fish", {"COMP_WORDS": "ringfence ", "COMP_CWORD": ""}, ","),
    ],
)
def test_zsh_and_fish_get_every_command(shell: str, variables: dict[str, str], separator: str) -> None:
    """These shells need not be installed: the script, and what the program answers to it."""
    script = cli("completion", shell).stdout
    instruction = f"_RINGFENCE_COMPLETE={shell}_complete"
    assert instruction in script
    assert "ringfence" in script.splitlines()[0]
    done = subprocess.run(
        [str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables, "_RINGFENCE_COMPLETE": f"{shell}_complete"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"{separator}{name}" in done.stdout


def test_another_shell_is_refused() -> None:
    done = cli("completion", "tcsh")
    assert done.returncode == Exit.USAGE
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr
