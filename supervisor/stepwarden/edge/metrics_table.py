"""Every metric that the endpoint serves, as data; docs and HELP texts come from here.

Three kinds of families: of the supervisor itself, of each worker, of each rank of a present life.
The order of WORKER_GAUGES, WORKER_TALLIES and RANK_METRICS is that of the values in a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from stepwarden.core.clocks import Cause
from stepwarden.core.lifecycle import State

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

STATES = tuple(state.value for state in State)
SUSPECTED = (
    Cause.STARTUP,
    Cause.STEP,
    Cause.HEARTBEAT,
    Cause.LEASE,
    Cause.SCHEDULER,
    Cause.PROGRESS,
    Cause.DRAIN,
)
"""Causes that a deadline stands behind: only these are ever suspected or a false alarm."""

PHASES = ("prefill", "decode", "other")
LARGEST_BATCH = 512
BATCHES = (*(str(2**power) for power in range(10)), "+Inf", "unknown")
"""Values of the label `batch`: so many sequences at most, and more than the one before."""

LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TURN_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
LONG_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
INTERVAL_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75)
RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.5, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `bounds`: of a histogram's buckets, without the last, which is +Inf."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _own(name: str, kind: str, text: str, *labels: str, bounds: tuple[float, ...] = ()) -> Metric:
    return Metric(f"stepwarden_{name}", kind, text, labels, bounds)


def _worker(
    name: str, kind: str, text: str, *labels: str, bounds: tuple[float, ...] = ()
) -> Metric:
    return Metric(f"stepwarden_{name}", kind, text, ("worker", *labels), bounds)


def _rank(name: str, kind: str, text: str) -> Metric:
    return Metric(f"stepwarden_rank_{name}", kind, text, ("worker", "rank"))


SUPERVISOR_METRICS = (
    _own("build_info", GAUGE, "Version of the supervisor; always 1.", "version"),
    _own(
        "supervisor_loop_age_seconds",
        GAUGE,
        "Time since the verdict loop last turned, worked out at the scrape. It turns each second;"
        " above 3 the loop is blocked or dead, and all else on this page is that old.",
    ),
    _own(
        "supervisor_loop_lag_seconds",
        HISTOGRAM,
        "How late the verdict loop woke up after the instant that it had set itself.",
        bounds=LAG_SECONDS,
    ),
    _own(
        "supervisor_turn_duration_seconds",
        HISTOGRAM,
        "How long one turn of the verdict loop took, from looking to telling.",
        bounds=TURN_SECONDS,
    ),
    _own(
        "supervisor_paused_seconds_total",
        COUNTER,
        "Time in which the verdict loop stood still (stopped, starved, or the machine paused); no"
        " clock of a worker counts it.",
    ),
    _own("supervisor_workers", GAUGE, "Workers of the configuration that holds now."),
    _own("supervisor_threads", GAUGE, "Threads of the supervisor that run Python."),
    _own(
        "supervisor_trouble",
        GAUGE,
        "1 while the supervisor itself has trouble (its state on disk, its sockets;"
        " `stepwarden status` says which), else 0.",
    ),
    _own(
        "supervisor_doubt_score",
        GAUGE,
        "How much the supervisor doubts itself, 0 to 8; retry windows are longer by a quarter of"
        " themselves for each point.",
    ),
    _own(
        "governor_frozen",
        GAUGE,
        "1 while kills are frozen because most workers turned suspect at once, else 0.",
    ),
    _own("governor_freezes_total", COUNTER, "Times that kills were frozen."),
    _own("governor_tokens", GAUGE, "Deaths by verdict that may be had at once."),
    _own(
        "governor_held_up_total",
        COUNTER,
        "Deaths that were held up for one more window, by reason: freeze or bucket.",
        "reason",
    ),
    _own("events_total", COUNTER, "Events in the history, by kind.", "kind"),
    _own(
        "config_reloads_total",
        COUNTER,
        "Reloads of the configuration since the start, by result: applied or failed.",
        "result",
    ),
    _own(
        "config_last_reload_successful",
        GAUGE,
        "1 where the configuration file as it was last read is in force, 0 where it was refused"
        " and the one before holds on.",
    ),
    _own(
        "config_last_reload_success_timestamp_seconds",
        GAUGE,
        "Unix time at which the configuration that is in force was taken over.",
    ),
    _own(
        "metrics_age_seconds",
        GAUGE,
        "Time since the loop last left its figures behind, worked out at the scrape. Above 3 while"
        " the loop turns: a fault of ours keeps them from being renewed, and all else is that old.",
    ),
    _own(
        "metrics_faults_total", COUNTER, "Times that a fault of ours kept the figures as they were."
    ),
    _own("metrics_scrapes_total", COUNTER, "Pages of metrics that were served."),
    _own(
        "metrics_connections_dropped_total",
        COUNTER,
        "Connections to this endpoint that were given up: too many at once, too slow, or no HTTP.",
    ),
    _own(
        "stacks_available",
        GAUGE,
        "1 while the stacks of hung Python workers can be captured; 0: py-spy is missing or may"
        " not, or incidents.stacks is off. `stepwarden doctor` says why.",
    ),
    _own(
        "stack_captures_total",
        COUNTER,
        "Looks at the stacks of a process: `seen`, or `failed`.",
        "result",
    ),
    _own(
        "incidents_total",
        COUNTER,
        "Bundles of UNHEALTHY and DEAD workers: `kept`, or `failed`, where the disk took none.",
        "result",
    ),
)

WORKER_STATE = _worker("worker_state", GAUGE, "1 for the state that it is in, else 0.", "state")
WORKER_SUSPICIONS = _worker(
    "worker_suspicions", GAUGE, "Deadlines that have passed and are being looked into.", "cause"
)
WORKER_DIAGNOSIS = _worker(
    "worker_diagnosis",
    GAUGE,
    "1 for the diagnosis of what is late, or of how its last life ended; no line where there is"
    " none. docs/states.md lists them.",
    "diagnosis",
)
WORKER_GAUGES = (
    _worker("worker_state_age_seconds", GAUGE, "Time since it came into its state."),
    _worker(
        "worker_uptime_seconds", GAUGE, "Time since its present life began; 0 while there is none."
    ),
    _worker("worker_incarnation", GAUGE, "Number of its present or last life."),
    _worker("worker_ranks", GAUGE, "Ranks that are attached."),
    _worker(
        "worker_silent_ranks",
        GAUGE,
        "Ranks whose page moves but whose beats do not arrive: the channel is at fault.",
    ),
    _worker(
        "worker_retry_windows",
        GAUGE,
        "Most retry windows that one of its present suspicions was given.",
    ),
    _worker(
        "worker_restart_budget_limit",
        GAUGE,
        "Deaths that make it FAILED (of its whole group where it has one).",
    ),
    _worker(
        "worker_restart_budget_remaining",
        GAUGE,
        "Deaths that are left before it is FAILED.",
    ),
    _worker(
        "worker_leftover_processes", GAUGE, "Processes of its last life that cannot be killed."
    ),
    _worker("worker_observed", GAUGE, "1 where its mode is observe: it is never signalled."),
    _worker(
        "worker_would_be_dead", GAUGE, "1 where only its mode, observe, spares it now, else 0."
    ),
)
WORKER_TALLIES = (
    _worker("worker_restarts_total", COUNTER, "Lives that began after a death."),
    _worker("worker_deaths_total", COUNTER, "Deaths, by cause.", "cause"),
    _worker(
        "worker_transitions_total",
        COUNTER,
        "Ways from one state to another, by cause (empty where there is none).",
        "from",
        "to",
        "cause",
    ),
    _worker(
        "worker_false_alarms_total",
        COUNTER,
        "Suspicions that went away by themselves, by cause.",
        "cause",
    ),
    _worker(
        "worker_shadow_deaths_total",
        COUNTER,
        "Deaths that would have been, by the rule that would have brought them: observe, for a"
        " worker whose mode that is; learned, with learn: observe.",
        "rule",
    ),
    _worker(
        "worker_diagnoses_total",
        COUNTER,
        "Verdicts (alarm, retry, false_alarm, death) by diagnosis.",
        "verdict",
        "diagnosis",
    ),
    _worker(
        "worker_verdicts_scored_total",
        COUNTER,
        "Alarms and deaths, also those that only would have been, by how they came out: confirmed,"
        " false or undecided (docs/ledger.md).",
        "scored",
        "rule",
        "cause",
        "diagnosis",
        "outcome",
    ),
    _worker(
        "worker_detection_seconds",
        HISTOGRAM,
        "From the begin of what was late to the alarm or death, counted when it is scored.",
        "scored",
        "rule",
        bounds=LONG_SECONDS,
    ),
    _worker(
        "worker_false_alarm_duration_seconds",
        HISTOGRAM,
        "How long what was taken for late took in the end; for a step, the step from its begin.",
        bounds=LONG_SECONDS,
    ),
    _worker(
        "step_duration_seconds",
        HISTOGRAM,
        "Long steps from begin to end, as the agent stamped them: all above 0.75 s, some between"
        " 0.25 s and that, none below. Each rank counts.",
        "phase",
        "batch",
        bounds=LONG_SECONDS,
    ),
    _worker(
        "step_interval_seconds",
        HISTOGRAM,
        "From the begin of a short step to the next begin: a sample of the newest 5 of each rank"
        " once a second. Not below the step's own duration, unless steps overlap.",
        "phase",
        "batch",
        bounds=INTERVAL_SECONDS,
    ),
    _worker(
        "step_budget_used_ratio",
        HISTOGRAM,
        "Duration of long steps as a share of what such a step may take.",
        bounds=RATIOS,
    ),
)
RANK_METRICS = (
    _rank("step_age_seconds", GAUGE, "Age of its oldest open step; 0 while none is open."),
    _rank("step_budget_seconds", GAUGE, "What its oldest open step may take."),
    _rank(
        "step_budget_remaining_seconds",
        GAUGE,
        "Time until the deadline of its oldest open step; 0 when that has passed.",
    ),
    _rank("open_steps", GAUGE, "Steps in flight."),
    _rank("beat_age_seconds", GAUGE, "Time since its last beat arrived."),
    _rank("resident_memory_bytes", GAUGE, "Resident memory, as its last beat told it."),
    _rank("cpu_seconds_total", COUNTER, "CPU time, as its last beat told it."),
    _rank("steps_total", COUNTER, "Steps that ended; exact, however short they are."),
    _rank(
        "steps_unrecorded_total",
        COUNTER,
        "Steps that began while all slots of its page were open, and are not timed.",
    ),
    _rank("beats_refused_total", COUNTER, "Beats that were not believed (late, doubled, older)."),
    _rank("stamps_clamped_total", COUNTER, "Its times that could not be true and were corrected."),
)
FIRST_RANK_COUNTER = next(i for i, each in enumerate(RANK_METRICS) if each.kind == COUNTER)

METRICS = (
    *SUPERVISOR_METRICS,
    WORKER_STATE,
    WORKER_SUSPICIONS,
    WORKER_DIAGNOSIS,
    *WORKER_GAUGES,
    *WORKER_TALLIES,
    *RANK_METRICS,
)
"""All of them, but for those of the process that prometheus_client adds (`process_...`)."""


@lru_cache(maxsize=1024)
def batch_label(num_seqs: int | None) -> str:
    """The value of the label `batch` for a step of so many sequences; None: unknown."""
    if num_seqs is None or num_seqs < 1:
        return "unknown"
    return "+Inf" if num_seqs > LARGEST_BATCH else str(1 << (num_seqs - 1).bit_length())


def phase_label(phase: str) -> str:
    """The value of the label `phase`."""
    return phase if phase in PHASES else "other"
