"""Whatever the file holds, the answer is a Config or a ConfigError in printable lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stepwarden.config import Config, ConfigError, load
from stepwarden.config.loader import load_text

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (ROOT / "config" / "stepwarden.yaml").read_text()
LINES = [line for line in SAMPLE.splitlines() if line.strip() and not line.strip().startswith("#")]
SCRAPS = ["0", "~", "[]", "{}", "*caches", "&a [*a]", "1:30", "!!int 5", "-", "'", '"', "<<:", "?"]
WORDS = st.sampled_from([*SCRAPS, "x: ", "workers:", "step:", "rows: {1: 5s}", "\t", "%", "|", ">"])


def check(text: str) -> None:
    problem = problem_of(lambda: load_text(text, Path("c.yaml"), {}))
    if problem is not None:
        assert problem.problems
        assert str(problem).isascii()
        assert len(str(problem).splitlines()) == len(problem.problems)


def problem_of(read: Callable[[], Config]) -> ConfigError | None:
    """The refusal, or None where the file can be used; any other error is a failure."""
    try:
        config = read()
    except ConfigError as error:
        return error
    assert config.workers
    return None


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    check(text)


@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_any_scraps_of_yaml(text: str) -> None:
    check(text)


@settings(max_examples=150)
@given(st.data())
def test_the_annotated_file_with_lines_lost_doubled_moved_and_spoilt(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(["lose", "double", "indent", "value", "text"]))
        if how == "lose" and len(lines) > 1:
            del lines[at]
        elif how == "double":
            lines.insert(data.draw(st.integers(0, len(lines))), lines[at])
        elif how == "indent":
            lines[at] = " " * data.draw(st.integers(0, 6)) + lines[at].strip()
        elif how == "value":
            lines[at] = lines[at].split(":")[0] + ": " + data.draw(WORDS)
        else:
            lines[at] += data.draw(st.text(max_size=5))
    check("\n".join(lines))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    problem = problem_of(lambda: load(file, {}))
    assert str(problem).isascii()
