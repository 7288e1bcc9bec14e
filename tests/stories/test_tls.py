"""A daemon that listens with TLS: agents, health, and certificates that it cannot use."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import grpc
import pytest
from stepwarden.errors import ExitCode
from support.certificates import Authority
from support.crew import Crew, check, health_stub, shell
from support.daemon import Daemon, free_port
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)


def tls(authority: Authority, mutual: bool = True) -> str:
    cert, key = authority.issue("server")
    ca = f", client_ca: {authority.ca}" if mutual else ""
    return f"tls: {{cert: {cert}, key: {key}{ca}}}"


def said(crew: Crew, words: str) -> bool:
    return words in crew.log_tail(10_000)


def test_agents_come_by_tcp_with_certificates_of_both_sides(tmp_path: Path) -> None:
    """One with the right files is heard, one without is not, and each says why."""
    authority, port = Authority(tmp_path), free_port()
    cert, key = authority.issue("agent", "agent")
    line = f"STEPWARDEN_TARGET=127.0.0.1:{port} STEPWARDEN_CA={authority.ca}"
    mutual = f"{line} STEPWARDEN_CERT={cert} STEPWARDEN_KEY={key}"
    run = " ".join(STUB_COMMAND)
    workers = {
        "mutual": shell(f"{mutual} exec {run}", agent="required", env={}),
        "without": shell(f"{line} exec {run}", agent="required", env={}),
        "plain": shell(f"STEPWARDEN_TARGET=127.0.0.1:{port} exec {run}", agent="required", env={}),
    }
    listen = f'  agents: {{listen: ["127.0.0.1:{port}"], {tls(authority)}}}\n'
    with Crew(workers, supervisor=listen) as crew:
        crew.wait_status(
            "mutual",
            lambda w: any(rank.HasField("beat_age_seconds") for rank in w.ranks),
            "heard",
        )
        for words in (
            "it may want a certificate of ours (STEPWARDEN_CERT, STEPWARDEN_KEY)",
            "if it speaks TLS, STEPWARDEN_CA is needed here",
        ):
            wait_for(partial(said, crew, words), what=words)
        for name in ("without", "plain"):
            ranks = crew.status()[name].ranks  # known by their pages alone
            assert not any(rank.HasField("beat_age_seconds") for rank in ranks)
        assert "ssl_transport_security" not in crew.log_tail(10_000)


def test_health_over_tls(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    body = "workers: {w: {shell: 'sleep 1000', agent: none}}\n"
    with Daemon(body) as daemon:
        daemon.stop()
        text = daemon.config.read_text()
        listen = f'health: {{listen: ["127.0.0.1:{port}"], {tls(authority, mutual=False)}}}\n'
        plain = f'health: {{listen: ["{daemon.health_address}"]}}\n'
        assert plain in text
        daemon.config.write_text(text.replace(plain, listen))
        daemon.start()
        believed = grpc.ssl_channel_credentials(authority.ca.read_bytes())
        with health_stub(f"127.0.0.1:{port}", believed) as asked:
            assert check(asked, "") == "SERVING"


@pytest.mark.parametrize("spoilt", ["missing", "exposed"])
def test_what_cannot_be_used_or_is_not_safe_stops_the_start_in_one_line(
    tmp_path: Path, spoilt: str
) -> None:
    authority = Authority(tmp_path)
    section = tls(authority)
    address = f"127.0.0.1:{free_port()}"
    wanted, code = "supervisor.agents.tls.key names it", ExitCode.REFUSED
    if spoilt == "missing":
        (tmp_path / "server.key").unlink()
    else:
        address, section = "0.0.0.0:50999", "insecure: false"
        wanted, code = "supervisor.agents.listen[0]", ExitCode.CONFIG
    agents = f'  agents: {{listen: ["{address}"], {section}}}\n'
    daemon = Daemon("workers: {w: {shell: 'sleep 1000', agent: none}}\n", supervisor=agents)
    done = subprocess.run(
        daemon.command(),
        env=daemon.environment(),
        cwd=daemon.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
