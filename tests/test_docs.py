"""The docs say what the code says: the picture of the states, exit codes, links, file names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stepwarden.cli.main import COMMANDS
from stepwarden.config import load
from stepwarden.core import sentences
from stepwarden.core.budget import SHIPPED
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.evidence import Step
from stepwarden.core.lifecycle import State, diagram
from stepwarden.core.verdict import Activity, Judgement, Measurement, Ruling, open_suspicion
from stepwarden.errors import ExitCode

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
HEADING_LINK = re.compile(r"\]\((?!https?://)([^)#]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PICTURE = re.compile(r"<!-- lifecycle:[^\n]*-->\n```text\n(.*?)```\n<!-- /lifecycle -->", re.DOTALL)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/states.md"])
def test_the_picture_of_the_states_is_printed_from_the_table(name: str) -> None:
    found = PICTURE.search(page(name))
    assert found is not None
    assert found[1] == diagram() + "\n"


@pytest.mark.parametrize("code", list(ExitCode))
def test_the_readme_names_every_exit_code(code: ExitCode) -> None:
    assert f"\n| {code.value} | " in page("README.md")


@pytest.mark.parametrize("word", [*State, *Cause, *Kind])
def test_the_page_of_states_explains_every_state_cause_and_event(word: str) -> None:
    assert f"\n| `{word}` | " in page("docs/states.md")


def test_the_first_file_of_the_readme_can_be_used(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", page("README.md"), re.DOTALL)
    path = tmp_path / "stepwarden.yaml"
    path.write_text(text, encoding="utf-8")
    config = load(path, {})
    assert config.warnings == ()
    (worker,) = config.workers.values()
    assert worker.policy.step_budget(16, None).seconds == 316.0


def test_the_sample_sentences_of_the_readme_are_real() -> None:
    """Made anew from the numbers in them, they come out as the page has them."""
    suspicion = open_suspicion(late_step(977, 64), 30.0, None, 364.0)
    stopped = Measurement(Activity.NOT_WORKING, 0.0, 30.0, "T")
    judgement = Judgement(suspicion, Ruling.DEAD, stopped, False)
    samples = " ".join(page("README.md").split())
    for sentence in (
        sentences.suspected(late_step(412, 64), 30.0, 364.0),
        sentences.false_alarm(late_step(412, 64), 382.0, 382.0).removeprefix("false alarm: "),
        sentences.ruled(judgement, 10.0, 394.0),
    ):
        assert sentence in samples


def test_the_sample_of_status_shows_a_real_sentence() -> None:
    samples = " ".join(page("docs/cli.md").split())
    assert sentences.suspected(late_step(17, 16), 30.0, 320.0) in samples


def late_step(number: int, seqs: int) -> RunningClock:
    """A decode step on a cpu that began at 0, with its shipped budget."""
    budget = SHIPPED["cpu"].budget(seqs, seqs)
    step = Step(number, 0.0, seqs, seqs, "decode")
    at, cap, text = Deadline(budget.seconds), 4 * budget.seconds, budget.arithmetic
    return RunningClock("0", Cause.STEP, 0.0, budget.seconds, at, cap, cap, text, step)


def test_the_readme_names_every_command() -> None:
    missing = [name for name in COMMANDS if f"stepwarden {name}" not in page("README.md")]
    assert set(missing) <= {"start", "stop"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_to_a_heading_lead_to_one(path: Path) -> None:
    found = HEADING_LINK.findall(path.read_text(encoding="utf-8"))
    missing = []
    for target, heading in found:
        other = path.parent / target if target else path
        if heading not in {as_anchor(line) for line in HEADING.findall(other.read_text())}:
            missing.append(f"{target}#{heading}")
    assert missing == []


def as_anchor(heading: str) -> str:
    """As it is made for a page that is shown."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def test_the_readme_leads_to_every_page_and_stays_short() -> None:
    readme = page("README.md")
    assert [
        path.name for path in ROOT.glob("docs/*.md") if f"(docs/{path.name})" not in readme
    ] == []
    assert len(readme.splitlines()) < 300


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_configuration_in_a_page_is_of_this_version(path: Path) -> None:
    """No page tells of a key that is gone, but for the list of changes."""
    if path.name != "CHANGELOG.md":
        assert "agent_listen" not in path.read_text(encoding="utf-8")
