"""``kbindex doctor``: examines the set-up, and approves servers outside any repository."""

from __future__ import annotations

from pathlib import Path

from kbindex.commands.doctor_checks import examine
from kbindex.core.errors import ExitCode
from kbindex.core.model import Status
from kbindex.embed.servers.approvals import approve_origin
from kbindex.embed.servers.hosts import parse_server
from kbindex.output.console import note, put
from kbindex.output.formats import Format
from kbindex.output.render import render_findings
from kbindex.repo.repository import open_repository


def doctor(directory: Path | None, form: Format) -> ExitCode:
    """Print what is found; exit 1 if anything has to be mended."""
    findings = list(examine(open_repository(directory)))
    put(render_findings(findings, form))
    is_healthy = all(finding.status != Status.ERROR for finding in findings)
    return ExitCode.OK if is_healthy else ExitCode.NEGATIVE


def trust_host(host: str) -> ExitCode:
    """Let the configuration of any repository send text to ``host``. Needs no repository."""
    server = parse_server(host)
    if server.is_loopback:
        note(f"{server.origin} is this machine and needs no approval")
        return ExitCode.OK
    file = approve_origin(server.origin)
    put(f"approved: {server.origin}   (in {file}; remove the line to take it back)")
    return ExitCode.OK
