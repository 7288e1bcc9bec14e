"""docs/metrics.md, made from the table: ``python -m stepwarden.edge.metrics_reference``."""

from __future__ import annotations

import sys

from stepwarden.edge.metrics_table import (
    BATCHES,
    METRICS,
    PHASES,
    RANK_METRICS,
    STATES,
    SUPERVISOR_METRICS,
    SUSPECTED,
    Metric,
)

_HEAD = """# Metrics

Made by `python -m stepwarden.edge.metrics_reference` from the table in the code.

```yaml
supervisor:
  metrics: {listen: "127.0.0.1:9464"}     # one address, or a list; nothing: no metrics
```

`http://127.0.0.1:9464/metrics` answers in the Prometheus text format. On an address that other
hosts can reach it needs `tls:` or `insecure: true` ([configuration.md](configuration.md));
whoever can read it learns names and states of workers, and no text of theirs.

```yaml
scrape_configs:
  - job_name: stepwarden
    static_configs: [{targets: ["127.0.0.1:9464"]}]
rule_files: [stepwarden.rules.yaml]       # config/prometheus; what to do is in docs/runbook.md
```

The dashboard for Grafana is `config/grafana/stepwarden.json`.

## How it is fed

The verdict loop counts as things happen and leaves an unchangeable snapshot once a second; a
thread of its own answers from that. So a scrape neither waits for the loop nor holds it up, and
what it shows is up to a second old. **Where the loop is dead the page still answers**: the last
snapshot, and `stepwarden_supervisor_loop_age_seconds` rises. A rule that looks at anything else
is blind then, so keep the alerts StepwardenLoopStale and StepwardenDown.

Counters begin at 0 with the daemon. The series of a worker begin with it at 0, so `increase()`
sees its first death; they vanish when a reload removes it. Series of ranks are there while the
worker lives.

| label | values |
|---|---|
| `worker`, `rank` | names; a worker has at most 256 ranks |
| `state` | {states} |
| `cause` | as in [states.md](states.md); of suspicions and false alarms: {suspected} |
| `phase` | {phases} |
| `batch` | sequences of the step, at most: {batches} |

## Which steps are timed

The end of an ordinary step is not stamped, for reading the clock is the dearest part of the hot
path ([page.md](page.md)). What can be known without it:

- **How many steps ended** is exact: `stepwarden_rank_steps_total`.
- **Long steps are exact** (`stepwarden_step_duration_seconds`,
  `stepwarden_step_budget_used_ratio`): the agent looks twice a second, and stamps the end of a
  step that it saw open for over 0.25 s. So every step above 0.75 s is there, some between 0.25
  s and that, none below. Up to 20 that end within one second are found again (16 slots and the
  last 4 long ones); more are missed. `batch` is `unknown` for a step of less than a second
  whose slot was used again before it was seen.
- **Short steps are sampled** (`stepwarden_step_interval_seconds`): from the begin of a step to
  the begin of the next one, of the newest 5 of each rank once a second. That is the
  step and the rest after it: not below its duration, unless steps overlap; then it is the pace.
  Over 0.75 s without a stamp it is a rest without work and is left out.
- **The open step** is seen at each look: `stepwarden_rank_step_age_seconds` and what is left of
  its budget.

Both histograms count each rank of a worker: eight ranks in step give eight observations.
"""

_PROCESS = """
## The process

By prometheus_client, about the daemon: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`,
`process_max_fds`, `process_start_time_seconds`.
"""


def markdown() -> str:
    """The whole page."""
    ranks = len(RANK_METRICS)
    own = METRICS[: len(SUPERVISOR_METRICS)]
    workers = METRICS[len(own) : -ranks]
    parts = [_head()]
    for title, metrics in (
        ("The supervisor", own),
        ("Each worker", workers),
        ("Each rank of a worker that lives", METRICS[-ranks:]),
    ):
        rows = "\n".join(map(_row, metrics))
        parts.append(f"\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|")
        parts.append(f"\n{rows}\n")
    return "".join([*parts, _PROCESS])


def _head() -> str:
    """The text before the tables, with the labels put in; its other braces are YAML's."""
    head = _HEAD
    values = {"states": STATES, "suspected": SUSPECTED, "phases": PHASES, "batches": BATCHES}
    for name, words in values.items():
        head = head.replace(f"{{{name}}}", _list(words))
    return head


def _row(metric: Metric) -> str:
    meaning = metric.help
    if metric.bounds:
        meaning += " Buckets: " + ", ".join(f"{bound:g}" for bound in metric.bounds) + "."
    return f"| `{metric.name}` | {metric.kind} | {_list(metric.labels)} | {meaning} |"


def _list(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    sys.stdout.write(markdown())
