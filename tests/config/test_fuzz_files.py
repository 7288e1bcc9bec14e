"""Files made from real ones by a hundred thousand accidents: a Config, or lines about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stepwarden.config import Config, ConfigError
from stepwarden.config.loader import load_file
from support import bad_files
from support.fuzz import FIXED_SEED, IN_SOAK, IN_TEST, Hunt, first_seed, mutated
from support.published import EXAMPLES, ROOT

MOST_LINE = 1500
SHORT = 900  # bytes of a sample: what a file is made of shows in its parts, and sooner


def parts(text: str) -> list[bytes]:
    """A file without its comments, cut at its top-level sections and at its workers."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    sections = re.split(r"^(?=\S)", "\n".join(lines) + "\n", flags=re.MULTILINE)
    found = []
    for section in filter(None, sections):
        head, _, rest = section.partition("\n")
        below = re.split(r"^(?=  \S)", rest, flags=re.MULTILINE)
        found += [f"{head}\n{part}" for part in below] if len(section) > SHORT else [section]
    with_worker = "workers:\n  w: {command: [a], backend: cpu}\n"
    return [(p if p.startswith("workers:") else p + with_worker).encode() for p in found]


FILES = [ROOT / "config" / "stepwarden.yaml", *sorted(EXAMPLES.glob("*.yaml"))]
SAMPLES = [
    *(part for file in FILES for part in parts(file.read_text())),
    *(data for data in (bad_files.HUGE | bad_files.MALFORMED).values() if len(data) < 2000),
]
SCRAPS = [
    *(b"0 -1 010 1e9 .inf .nan 1:30 30s 9999999999d 5MiB ~ null on true [] {} ''".split()),
    *(b"*a &a & << ? | > - : , ! !!int !!binary %TAG # --- ... ${A} $${A} ${A:-x}".split()),
    *(b"<<: *a|\n|: |\t|\r|\xc2\x85|\xe2\x80\xa8|\xef\xbb\xbf|\0|\xff|  ".split(b"|")),
    b"[" * 40,
    b"{a: " * 40,
    b"x" * 5000,
    b"9" * 400,
    b"&a [*a, *a]",
    b"workers:",
    b"command: [a]",
    b"\n  w2: {command: [b]}\n",
]


def hunt(count: int, seed: int, file: Path) -> Hunt:
    found = Hunt(count, seed)
    environment = {"A": "a", "HOME": "/root", "MODELS_DIR": "/srv"}

    def try_one(data: bytes) -> None:
        file.write_bytes(data)
        try:
            config = load_file(file, environment)
        except ConfigError as error:
            check_told(error)
        else:
            assert isinstance(config, Config)

    found.run(lambda rng: mutated(rng, SAMPLES, SCRAPS), try_one)
    return found


def check_told(error: ConfigError) -> None:
    text = str(error)
    assert text.isascii()
    lines = text.split("\n")
    assert 0 < len(lines) == len(error.problems)
    assert all(len(line) < MOST_LINE and line.isprintable() for line in lines)
    assert error.identity


@pytest.mark.parametrize("mark", ["x", "\u00e9"])
def test_a_value_of_any_length_makes_a_line_of_bounded_length(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "c.yaml"
    host = "127.0.0." + mark * 5000
    workers = "workers: {w: {command: [x], backend: cpu}}"
    file.write_text(f"""supervisor: {{health: {{listen: ["{host}:1"]}}}}\n{workers}\n""")
    with pytest.raises(ConfigError) as caught:
        load_file(file, {})
    check_told(caught.value)


def test_the_samples_are_many_and_some_of_them_load(tmp_path: Path) -> None:
    assert len(SAMPLES) > 60
    loaded = 0
    for sample in SAMPLES:
        (tmp_path / "c.yaml").write_bytes(sample)
        try:
            load_file(tmp_path / "c.yaml", {"MODELS_DIR": "/srv"})
        except ConfigError:
            continue
        loaded += 1
    assert loaded > 20


def test_a_few_spoilt_files(tmp_path: Path) -> None:
    hunt(IN_TEST, FIXED_SEED, tmp_path / "c.yaml")


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("half", ["one", "other"])  # for two cores
def test_a_hundred_thousand_spoilt_files(
    half: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = first_seed()
    with capsys.disabled():
        print(f"\n{IN_SOAK // 2} files, {half} half: STEPWARDEN_SEED={seed} makes them again")
    hunt(IN_SOAK // 2, seed, tmp_path / "c.yaml").assert_steady()
