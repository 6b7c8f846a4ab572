"""The command line: options in, one command called, an exit code out.

Commands are imported when they are called: a query must not pay for what it doesn't use.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kbindex import __version__
from kbindex.core.errors import ExitCode, KbindexError
from kbindex.output.console import begin_run, drop, note
from kbindex.output.formats import Format

app = typer.Typer(
    name="kbindex",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_REFUSALS_OF_THE_SYSTEM = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.EROFS, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE),
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR),  # something else stands in our place
    }
)


class _Global:
    repo: Path | None = None


def _run(command: Callable[[], ExitCode]) -> None:
    """Call a command and leave with its exit code; what a user can mend is one message."""
    begin_run()
    try:
        code = command()
    except KbindexError as error:
        note(error.message)
        if error.remedy:
            note(f"remedy: {error.remedy}")
        code = error.exit_code
    except KeyboardInterrupt:
        note("interrupted; work done so far is kept")
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        drop(sys.stdout)  # the reader has seen enough
        code = ExitCode.OK
    except OSError as error:
        if error.errno in _REFUSALS_OF_THE_SYSTEM:
            from kbindex.local.sqlite_errors import lacks_room

            note(f"the system refused: {error}")
            if lacks_room(error):
                note("remedy: make room on the disk, then run this again")
            code = ExitCode.USAGE
        else:
            code = _report_bug()
    except MemoryError:
        note("the system refused: there is not enough memory")
        code = ExitCode.USAGE
    except (SystemExit, GeneratorExit):
        raise
    except BaseException:  # panics of native code are no Exceptions, and Python would exit with 1
        code = _report_bug()
    raise typer.Exit(int(code))


def _spare_threads() -> None:
    """Let numpy, which is imported next, start no threads: a query has one short product for them.

    Starting them takes a tenth of a query's time on two cores, and more on more.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _require_format(form: Format, *known: Format) -> None:
    if form not in known:
        named = ", ".join(known)
        raise typer.BadParameter(f"{form.value} is not one of {named}", param_hint="--format")


def _report_bug() -> ExitCode:
    report = traceback.format_exc()
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="kbindex-bug-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"kbindex {__version__}, Python {sys.version}\n{report}")
        note(f"this is a bug in kbindex, sorry; please report what stands in {file.name}")
    except OSError:
        last = report.rstrip().rsplit("\n", 1)[-1]
        note(f"this is a bug in kbindex, sorry; there is no room for a report, please say: {last}")
    return ExitCode.BUG


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kbindex {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    repo: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Work on the repository that holds DIR.")
    ] = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A search index of a knowledge bundle, inside the git repository that holds it."""
    _Global.repo = repo


@app.command("init")
def init_command(
    bundle: Annotated[str | None, typer.Option(metavar="DIR", help="The bundle's folder.")] = None,
    hooks: Annotated[
        str | None, typer.Option(metavar="KIND", help="pre-commit, native or none.")
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="builtin, ollama:MODEL, openai:MODEL, portable or hash."),
    ] = None,
) -> None:
    """Set a repository up: configuration, hooks, first build. Safe to repeat."""
    from kbindex.commands.init import InitOptions, init

    if hooks not in (None, "pre-commit", "native", "none"):
        raise typer.BadParameter(f"{hooks} is not pre-commit, native or none", param_hint="--hooks")
    _run(lambda: init(_Global.repo, InitOptions(bundle, hooks, embedder)))


@app.command("update")
def update_command(
    worktree: Annotated[
        bool,
        typer.Option("--worktree/--staged", help="Index the bundle as on disk, or as staged."),
    ] = False,
    stage: Annotated[
        bool | None,
        typer.Option("--stage/--no-stage", help="Stage the index, or only write it."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    re_embed: Annotated[
        str,
        typer.Option(metavar="PATH", help="Embed a document or folder again, known or not."),
    ] = "",
) -> None:
    """Bring the index up to the bundle."""
    from kbindex.commands.update import UpdateOptions, update

    stage = not worktree if stage is None else stage
    options = UpdateOptions(worktree, stage, dry_run, re_embed)
    _run(lambda: update(_Global.repo, options))


@app.command("check")
def check_command(
    rev: Annotated[
        str | None, typer.Option(metavar="REV", help="A commit, instead of what is staged.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Chunk every document again.")] = False,
    n_audited: Annotated[
        int,
        typer.Option("--audit", min=0, metavar="N", help="Embed N chunks again and compare."),
    ] = 0,
    notices_fail: Annotated[
        bool, typer.Option("--fail-on-notices", help="Let odd documents fail the check, too.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TEXT,
) -> None:
    """Say whether the index is exactly that of its bundle. Never writes."""
    from kbindex.commands.check import check

    _require_format(form, Format.TEXT, Format.JSON, Format.GITHUB, Format.SARIF)
    _run(
        lambda: check(
            _Global.repo,
            rev,
            form,
            strict=strict,
            n_audited=n_audited,
            notices_fail=notices_fail,
        )
    )


@app.command("status")
def status_command(
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Show what is indexed, by what, how much of it, and what is stale."""
    from kbindex.commands.status import status

    _require_format(form, Format.TEXT, Format.JSON)
    _run(lambda: status(_Global.repo, form))


@app.command("query")
def query_command(
    text: Annotated[str, typer.Argument(help="Words or a question; '--' before a leading dash.")],
    n_hits: Annotated[int, typer.Option("-k", min=1, help="Hits to show.")] = 5,
    mode: Annotated[str, typer.Option(help="auto, hybrid, dense or lexical.")] = "auto",
    path: Annotated[str, typer.Option(metavar="GLOB", help="Only documents at GLOB.")] = "",
    kind: Annotated[
        str, typer.Option("--type", metavar="T", help="Only documents of type T.")
    ] = "",
    tag: Annotated[str, typer.Option(metavar="T", help="Only documents with tag T.")] = "",
    per_doc: Annotated[int, typer.Option(min=1, metavar="N", help="Hits per document.")] = 1,
    min_similarity: Annotated[
        float | None, typer.Option(metavar="X", help="Only passages at least this similar.")
    ] = None,
    with_text: Annotated[bool, typer.Option("--text", help="Include the passages.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show what made the score.")] = False,
    form: Annotated[Format, typer.Option("--format", help="text, json or jsonl.")] = Format.TEXT,
) -> None:
    """Search by words and meaning; every hit cites its section, lines and span."""
    _spare_threads()
    from kbindex.commands.query import query
    from kbindex.search.query import MODES
    from kbindex.search.request import Filters, QueryOptions

    _require_format(form, Format.TEXT, Format.JSON, Format.JSONL)
    if mode not in MODES:
        raise typer.BadParameter(f"{mode} is not {', '.join(MODES)}", param_hint="--mode")
    options = QueryOptions(
        mode, n_hits, per_doc, min_similarity, with_text, explain, Filters(path, kind, tag)
    )
    _run(lambda: query(_Global.repo, text, options, form))


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(metavar="ID", help="An id or path; ID#anchor works too.")],
    section: Annotated[
        str | None, typer.Option(metavar="HEADING|ANCHOR", help="Only this section.")
    ] = None,
    span: Annotated[str | None, typer.Option(metavar="A:B", help="Only these characters.")] = None,
    lines: Annotated[str | None, typer.Option(metavar="A:B", help="Only these lines.")] = None,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Print a document, a section or a passage exactly as it is indexed."""
    from kbindex.commands.get import Part, get

    _require_format(form, Format.TEXT, Format.JSON)
    _run(lambda: get(_Global.repo, name, Part(section, span, lines), form))


@app.command("related")
def related_command(
    name: Annotated[str, typer.Argument(metavar="ID", help="An id or path.")],
    n_documents: Annotated[int, typer.Option("-k", min=1, help="Documents to show.")] = 5,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Show the documents nearest to one, by their own vectors."""
    _spare_threads()
    from kbindex.commands.related import related

    _require_format(form, Format.TEXT, Format.JSON)
    _run(lambda: related(_Global.repo, name, n_documents, form))


@app.command("context")
def context_command(
    text: Annotated[str, typer.Argument(help="Words or a question.")],
    budget: Annotated[int, typer.Option(metavar="TOKENS", help="cl100k tokens to fill.")],
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Print passages for a model that fit a token budget, each cited."""
    _spare_threads()
    from kbindex.commands.context import context

    _require_format(form, Format.TEXT, Format.JSON)
    _run(lambda: context(_Global.repo, text, budget, form))


@app.command("eval")
def eval_command(
    file: Annotated[Path, typer.Argument(help="Questions, a JSON object a line.")],
    modes: Annotated[
        str, typer.Option(help="Of lexical, dense, hybrid, rrf and document, with commas.")
    ] = "lexical,dense,hybrid",
    k: Annotated[int, typer.Option("-k", min=1, help="Hits that are looked at.")] = 5,
    gates: Annotated[
        list[str] | None,
        typer.Option("--gate", metavar="MEASURE>=X", help="Exit with 1 unless this holds."),
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Find the best dense weight.")] = False,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Measure how well the answers to a question file are found."""
    from kbindex.commands.eval import evaluate
    from kbindex.evaluation.report import EvalOptions

    _require_format(form, Format.TEXT, Format.JSON)
    names = tuple(dict.fromkeys(mode.strip() for mode in modes.split(",") if mode.strip()))
    options = EvalOptions(names, k, tuple(gates or ()), tune)
    _run(lambda: evaluate(_Global.repo, file, options, form))


@app.command("diff")
def diff_command(
    before: Annotated[
        str, typer.Argument(metavar="A", help="A revision, 'staged' or 'worktree'.")
    ] = "HEAD",
    after: Annotated[
        str, typer.Argument(metavar="B", help="A revision, 'staged' or 'worktree'.")
    ] = "staged",
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show also whose answers to these questions move."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when they differ.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="text, json or markdown.")] = Format.TEXT,
) -> None:
    """Show what changed in the index from A to B: documents, sections, chunks embedded."""
    from kbindex.commands.diff import diff

    _require_format(form, Format.TEXT, Format.JSON, Format.MARKDOWN)
    _run(lambda: diff(_Global.repo, before, after, form, exit_code=exit_code, queries=queries))


@app.command("resolve")
def resolve_command() -> None:
    """Mend the index during a conflicted merge, rebase, cherry-pick or revert; embeds nothing."""
    from kbindex.commands.resolve import resolve

    _run(lambda: resolve(_Global.repo))


@app.command("compact")
def compact_command() -> None:
    """Rewrite the table with only the rows that some branch needs, and stage it."""
    from kbindex.commands.compact import compact

    _run(lambda: compact(_Global.repo))


@app.command("checkpoint")
def checkpoint_command() -> None:
    """Fold the WAL into the table as one new version, and stage it."""
    from kbindex.commands.checkpoint import checkpoint

    _run(lambda: checkpoint(_Global.repo))


@app.command("doctor")
def doctor_command(
    host: Annotated[
        str | None,
        typer.Option(
            "--trust-host",
            metavar="HOST",
            help="Let repositories send text to this server; examines nothing.",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> None:
    """Examine git, hooks, attributes, tokenizer, embedder and view; each finding with a remedy."""
    from kbindex.commands.doctor import doctor, trust_host

    _require_format(form, Format.TEXT, Format.JSON)
    _run(lambda: doctor(_Global.repo, form) if host is None else trust_host(host))


@app.command("hook")
def hook_command(
    name: Annotated[
        str, typer.Argument(help="pre-commit, pre-merge-commit, post-commit, pre-push.")
    ],
    _arguments: Annotated[
        list[str] | None, typer.Argument(help="What git passes; not used.")
    ] = None,
    stage: Annotated[
        bool, typer.Option("--stage/--no-stage", help="Stage the index, or write it and exit 1.")
    ] = True,
) -> None:
    """Entry of git's hooks."""
    from kbindex.commands.hook import hook

    _run(lambda: hook(_Global.repo, name, stage=stage))
