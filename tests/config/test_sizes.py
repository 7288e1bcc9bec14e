"""Sizes, as they are written."""

from __future__ import annotations

import pytest
from stepwarden.config.values import parse_size, size_text
from support.loading import errors, loaded

TEXT = "workers: {w: {backend: cpu, command: [a], output: {mode: capture, max_file: %s}}}"


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("65536", 65536),
        ("100MiB", 100 * 1024**2),
        ("1GB", 10**9),
        ("1.5GiB", 3 * 2**29),
        ("64KiB", 65536),
        ("1TiB", 2**40),
        ("500KB", 500_000),
        ('"100MiB"', 100 * 1024**2),
    ],
)
def test_a_size_is_bytes(written: str, size: int) -> None:
    assert loaded(TEXT % written).workers["w"].output.max_file == size


@pytest.mark.parametrize(
    "written",
    ["100 MiB", "100M", "100mib", "1e9", "-1", "0", "1KiB", "2TiB", '"65536"', "0x10000", "65_536"],
)
def test_what_is_no_size_is_refused(written: str) -> None:
    (message,) = errors(TEXT % written).values()
    assert "100MiB, 1.5GiB, 1GB or plain bytes" in message
    assert "from 64KiB to 1TiB" in message


@pytest.mark.parametrize("size", [0, 1, 1500, 65536, 2**20, 3 * 2**29, 2**40, 10**9])
def test_a_size_is_written_so_that_it_reads_back(size: int) -> None:
    assert parse_size(size_text(size)) == size
