"""Certificates that change on disk are taken up, and what is wrong with them is told once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.event import Event
from stepwarden.daemon import certificate_watch
from stepwarden.daemon.certificate_watch import CertificateWatch
from stepwarden.edge.certificates import Certificates
from stepwarden.exposure import TlsFiles
from support.certificates import Authority


def test_changes_are_taken_up_and_troubles_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_EVERY_SECONDS", 0.05)
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    told: list[Event] = []

    async def story() -> None:
        certificates = Certificates(TlsFiles(cert, key), "supervisor.agents")
        refresh, looks = certificates.refresh, list[None]()

        def counted() -> object:
            looks.append(None)
            return refresh()

        monkeypatch.setattr(certificates, "refresh", counted)
        watch = CertificateWatch(lambda: [certificates], SystemClock(), told.append)
        watch.start()
        key.unlink()
        while not told:
            await asyncio.sleep(0.01)
        seen = len(looks)
        while len(looks) < seen + 3:  # several looks later it has still been told once
            await asyncio.sleep(0.01)
        assert len(told) == 1
        authority.issue("server")
        while len(told) < 2:
            await asyncio.sleep(0.01)
        await watch.close()

    asyncio.run(asyncio.wait_for(story(), 30))
    assert "the former certificates of supervisor.agents stay in use" in told[0].sentence
    assert f"{key} cannot be read" in told[0].sentence
    assert told[1].sentence == "new certificates of supervisor.agents are in use"


def test_certificates_that_have_expired_are_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_EVERY_SECONDS", 0.05)
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    told: list[Event] = []

    async def story() -> None:
        certificates = Certificates(TlsFiles(cert, key), "supervisor.agents")
        watch = CertificateWatch(lambda: [certificates], SystemClock(), told.append)
        watch.start()
        authority.issue("server", expired=True)
        while not [event for event in told if "has expired" in event.sentence]:
            await asyncio.sleep(0.01)
        authority.issue("server")  # and whatever was to be told of the former is told before this
        while "are in use" not in told[-1].sentence:
            await asyncio.sleep(0.01)
        await watch.close()

    asyncio.run(asyncio.wait_for(story(), 30))
    (expired,) = [event.sentence for event in told if "expired" in event.sentence]
    assert expired == "the certificate of supervisor.agents has expired: clients refuse it"


def test_files_that_hang_hold_up_none_of_another_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(certificate_watch, "LOOK_SECONDS", 0.05)
    authority = Authority(tmp_path)
    told: list[str] = []
    answered = threading.Event()
    hanging = Certificates(TlsFiles(*authority.issue("far")), "supervisor.metrics")
    monkeypatch.setattr(hanging, "refresh", answered.wait)
    near = Certificates(TlsFiles(*authority.issue("near")), "supervisor.agents")

    async def story() -> None:
        watch = CertificateWatch(
            lambda: [hanging, near], SystemClock(), lambda event: told.append(event.sentence)
        )
        watch.start()
        while not told:
            await asyncio.sleep(0.01)
        authority.issue("near")
        # Two files are two writes: a look between them finds a pair that does not fit, and says so.
        while told[-1] != "new certificates of supervisor.agents are in use":
            await asyncio.sleep(0.01)
        await watch.close()

    try:
        asyncio.run(asyncio.wait_for(story(), 30))
    finally:
        answered.set()
    assert "supervisor.metrics stay in use: their file system does not answer" in told[0]
