"""Run the root command: import commands on demand, turn every error into one line and an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from ringfence.control.cli.escape_control import prepare_stdout, printable
from ringfence.control.cli.exit_codes import Exit, OutputFailedError, exit_code_of, exit_code_table
from ringfence.control.cli.signals import ending_as_interrupt
from ringfence.native.errors import RingfenceError

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("ringfence.control.cli.serve", "Run a node."),
    "topic": (
        "ringfence.control.cli.topic",
        "Create, list, show and delete topics; split and merge their partitions.",
    ),
    "publish": ("ringfence.control.cli.publish", "Send a Parquet or Arrow file to a topic."),
    "read": ("ringfence.control.cli.read", "Read rows of a topic."),
    "compact": ("ringfence.control.cli.compact", "Write a topic's new rows to Parquet files, each row once."),
    "status": ("ringfence.control.cli.status", "Show a node's identity and health."),
    "node": ("ringfence.control.cli.node", "List, promote, demote, drain and remove nodes of a cluster."),
    "partition": (
        "ringfence.control.cli.partition",
        "Show a partition; force an owner after the loss of a majority.",
    ),
    "rebalance": (
        "ringfence.control.cli.rebalance",
        "Move partitions between nodes; watch, pause and cancel moves.",
    ),
    "cluster": (
        "ringfence.control.cli.cluster",
        "Show programs and levels of the nodes; finalize an upgrade.",
    ),
    "config": ("ringfence.control.cli.config", "Show and change the limits of a cluster."),
    "producer": ("ringfence.control.cli.producer", "List and forget named producers of a topic."),
    "cohort": (
        "ringfence.control.cli.cohort",
        "Create, list, show, change, reset and delete cohorts of topics.",
    ),
    "scope": ("ringfence.control.cli.scope", "List and forget scopes of atomic writers."),
    "top": ("ringfence.control.cli.top", "Show nodes and rates of a cluster, live."),
    "token": ("ringfence.control.cli.token", "Create, list and revoke access tokens."),
    "dev": ("ringfence.control.cli.dev", "Run a cluster of local processes until Ctrl-C."),
    "demo": ("ringfence.control.cli.demo", "Send TPC-H lineitem through a temporary node and compare."),
    "debug": ("ringfence.control.cli.debug", "Record steps of consensus and replay them."),
    "bench": ("ringfence.control.cli.bench", "Measure a quick load against a running node."),
    "fsck": ("ringfence.control.cli.fsck", "Check a stopped node's records, or a whole cluster."),
    "completion": (
        "ringfence.control.cli.completion",
        "Print a script that completes commands in bash, zsh or fish.",
    ),
}

OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# click >= 8.2 raises this for a group without a command; older versions show the help and exit with 0.
NO_ARGUMENTS: tuple[type[click.UsageError], ...] = tuple(
    filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)])
)


class OutputClosedError(Exception):
    """The reader of stdout has closed the pipe."""


@contextmanager
def output_failures() -> Iterator[None]:
    """Turn errors of stdout into OutputClosedError and OutputFailedError.

    Used inside of click, which exits with 1 at a broken pipe and prints an empty line at an interrupt.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except KeyboardInterrupt as error:
        if (
            sys.stderr.isatty()
        ):  # click ends the line that shows ^C; without a terminal it prints an empty line
            raise
        raise click.exceptions.Abort from error
    except OSError as error:
        # Input files, nodes and data directories have their own typed errors.
        if error.errno in OUTPUT_ERRORS:
            raise OutputFailedError(f"the output cannot be written: {error.strerror}") from error
        raise


class LazyGroup(click.Group):
    """A group with names and summaries of the commands; imports a command when it is called."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with output_failures():  # for --help and --version
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with output_failures():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing the commands, which click's own method does."""
        names = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version  # noqa: PLC0415 - reads files; only when asked

        click.echo(f"ringfence {version('ringfence')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="\b\nExit codes:\n" + exit_code_table(),
)
@click.option("--debug", is_flag=True, envvar="RINGFENCE_DEBUG", help="Show tracebacks of errors.")
@click.option(
    "--version",
    is_flag=True,
    callback=_show_version,
    expose_value=False,
    is_eager=True,
    help="Show the version and exit.",
)
@click.pass_context
def root(ctx: click.Context, debug: bool) -> None:  # noqa: FBT001 - click's
    """Durable, partitioned ingest of Arrow record batches: exactly once, on disk before the acknowledgement.

    \b
    Example:
      ringfence serve --data ./data &
      ringfence publish trips trips.parquet --create --key trip_id
      ringfence read trips --limit 5
    """  # noqa: D301 - click's \b keeps the lines
    ctx.obj = {"debug": debug}


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code; errors become one line on stderr."""
    as_json = "--json" in arguments
    debug = "--debug" in arguments or bool(os.environ.get("RINGFENCE_DEBUG"))
    if sys.stdout is None and "serve" not in arguments:  # a service may run without stdout
        message = "the output cannot be written: stdout is closed"
        return _report("OutputFailedError", message, Exit.OUTPUT, {}, as_json=False)
    prepare_stdout()
    try:
        with ending_as_interrupt():
            code = root.main(args=arguments, prog_name="ringfence", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _report("Interrupted", "interrupted", Exit.INTERRUPTED, {}, as_json=as_json)
    except click.ClickException as error:
        return _usage(error, as_json=as_json)
    except OutputClosedError:
        _discard_stdout()
        return Exit.OK
    except OutputFailedError as error:
        _discard_stdout()
        return _report("OutputFailedError", str(error), Exit.OUTPUT, {}, as_json=as_json)
    except Exception as error:
        if debug:
            raise
        return _failure(error, as_json=as_json)
    return code if isinstance(code, int) else Exit.OK


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, NO_ARGUMENTS):
        error.show()  # prints the whole help text
        return Exit.USAGE
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"; see {error.ctx.command_path} --help"
    code = Exit.USAGE if isinstance(error, click.UsageError | click.FileError) else Exit.DEFECT
    return _report(type(error).__name__, error.format_message().rstrip(".") + hint, code, {}, as_json=as_json)


def _failure(error: Exception, *, as_json: bool) -> int:
    code = exit_code_of(error)
    name, values = type(error).__name__, {}
    if isinstance(error, RingfenceError):
        values = error.values()
    text = str(error) or name
    if code is Exit.DEFECT:
        text = f"{name}: {text}; --debug shows the traceback"
    return _report(name, text, code, values, as_json=as_json)


def _report(name: str, text: str, code: Exit, values: dict[str, Any], *, as_json: bool) -> int:
    """Print the error as one line on stderr; line breaks of the text become spaces."""
    line = " ".join(text.split())
    if as_json:
        fields = {"error": name, "message": line, "exit": int(code), **values}
        click.echo(json.dumps(fields, default=str), err=True)
    else:
        click.echo(f"ringfence: {printable(line)}", err=True)
    return code
