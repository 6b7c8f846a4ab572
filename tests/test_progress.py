"""What is shown of long work, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from kbindex.output.progress import progress_on

pytestmark = pytest.mark.quick


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, seconds: float) -> str:
    """Embed ten chunks, each of which takes so many seconds."""
    now = 0.0
    with progress_on(stream, lambda: now) as progress:
        for done in range(1, 11):
            now += seconds
            progress(done, 10)
    return stream.getvalue()


def test_short_work_is_silent_where_there_is_no_terminal() -> None:
    assert shown(io.StringIO(), 2.9) == ""


def test_long_work_says_now_and_then_how_far_it_is() -> None:
    assert shown(io.StringIO(), 16).splitlines() == [
        "kbindex: embedding chunk 2 of 10, 128 s left (what is done is kept)",
        "kbindex: embedding chunk 4 of 10, 96 s left (what is done is kept)",
        "kbindex: embedding chunk 6 of 10, 64 s left (what is done is kept)",
        "kbindex: embedding chunk 8 of 10, 32 s left (what is done is kept)",
    ]


def test_a_pipe_that_nobody_reads_does_not_stop_the_work() -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    assert shown(Broken(), 40) == ""


def test_a_terminal_has_one_line_that_goes_at_the_end() -> None:
    written = shown(Terminal(), 1)
    assert "\r\x1b[Kembedding chunk 3 of 10, 7 s left" in written
    assert "\n" not in written
    assert written.endswith("\r\x1b[K")
