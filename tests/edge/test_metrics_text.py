"""The text of the workers' metrics, read back with the parser of prometheus_client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from stepwarden.edge import metrics_table as table
from stepwarden.edge.metrics_snapshot import RankFigures, WorkerFigures
from stepwarden.edge.metrics_tally import Counts, Frozen, Histogram, Histograms, labelled
from stepwarden.edge.metrics_text import workers_text


def figures(name: str, state: str = "HEALTHY") -> WorkerFigures:
    labels = labelled(worker=name)
    tallies: list[Frozen] = []
    for metric in table.WORKER_TALLIES:
        if metric.kind == table.HISTOGRAM:
            histograms = Histograms(metric.bounds, [labels])
            histograms.observe(labels, 0.7)
            tallies.append(histograms.freeze())
        else:
            tallies.append(Counts([labels]).freeze())
    rank = RankFigures(labelled(worker=name, rank="0"), (1.5, None, *range(9)))
    gauges = tuple(float(index) for index in range(len(table.WORKER_GAUGES)))
    return WorkerFigures(labels, state, gauges, (0, 2, 0, 0, 0, 0, 0), tuple(tallies), (rank,))


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_family_is_there_once_with_its_kind_and_help() -> None:
    found = list(text_string_to_metric_families(workers_text((figures("a"), figures("b")))))
    wanted = table.METRICS[len(table.SUPERVISOR_METRICS) :]
    assert [family.name for family in found] == [m.name.removesuffix("_total") for m in wanted]
    assert [(family.type, family.documentation) for family in found] == [
        (metric.kind, metric.help) for metric in wanted
    ]
    for metric, family in zip(wanted, found, strict=True):
        known = set(metric.labels) | ({"le"} if metric.bounds else set())
        assert all(set(sample.labels) <= known for sample in family.samples)


def test_the_state_is_one_of_all_states() -> None:
    found = values(workers_text((figures("a", "DEAD"),)))
    states = {
        dict(labels)["state"]: value
        for (name, labels), value in found.items()
        if name == "stepwarden_worker_state"
    }
    assert states == {state: float(state == "DEAD") for state in table.STATES}


def test_what_is_not_known_is_not_there() -> None:
    found = values(workers_text((figures("a"),)))
    labels = (("rank", "0"), ("worker", "a"))
    assert found["stepwarden_rank_step_age_seconds", labels] == 1.5
    assert ("stepwarden_rank_step_budget_seconds", labels) not in found


def test_without_workers_there_is_nothing() -> None:
    assert workers_text(()) == ""


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_survives(name: str) -> None:
    counts = Counts()
    counts.add(labelled(worker=name, cause="x"), 3)
    found = values(f"# TYPE a counter\n{counts.freeze().text('a_total')}")
    assert found == {("a_total", (("cause", "x"), ("worker", name))): 3.0}


@given(st.lists(st.floats(0, 4000), max_size=30))
def test_a_histogram_counts_up(observed: list[float]) -> None:
    histogram = Histogram(table.LONG_SECONDS, 'worker="w"')
    for value in observed:
        histogram.observe(value)
    found = values("# TYPE h histogram\n" + histogram.freeze().text("h"))
    for bound in table.LONG_SECONDS:
        key = ("h_bucket", (("le", f"{bound:g}"), ("worker", "w")))
        assert found[key] == sum(value <= bound for value in observed)
    assert found["h_count", (("worker", "w"),)] == len(observed)
    assert found["h_sum", (("worker", "w"),)] == pytest.approx(sum(observed))


def test_what_did_not_change_is_the_same_object_and_what_is_frozen_stays() -> None:
    counts, histograms = Counts(["a"]), Histograms((1.0,), ["a"])
    before = counts.freeze(), histograms.freeze()
    texts = [each.text("x") for each in before]
    assert (counts.freeze(), histograms.freeze()) == before
    assert counts.freeze() is before[0]
    counts.add("a")
    histograms.observe("a", 0.5)
    assert [each.text("x") for each in before] == texts
    assert counts.freeze().text("x") == "x{a} 1\n"
    assert 'x_bucket{a,le="1"} 1\n' in histograms.freeze().text("x")


@pytest.mark.parametrize(
    ("seqs", "label"),
    [
        *((None, "unknown"), (0, "unknown"), (-3, "unknown")),
        *((1, "1"), (2, "2"), (3, "4"), (64, "64"), (65, "128"), (512, "512")),
        *((513, "+Inf"), (10**9, "+Inf")),
    ],
)
def test_batches_have_few_labels(seqs: int | None, label: str) -> None:
    assert table.batch_label(seqs) == label
    assert label in table.BATCHES
