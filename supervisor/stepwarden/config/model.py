"""The whole file as pydantic models. Loading, the JSON Schema and the reference all stand on it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stepwarden.config.fields import Address, Choice, Duration, Flag, Text, Whole
from stepwarden.config.incident_section import IncidentsSection
from stepwarden.config.listen_section import ListenSection
from stepwarden.config.quantities import OneOrMore, Size
from stepwarden.config.ready_rules import ALL, ReadyRuleSection
from stepwarden.config.sections import (
    ABSOLUTE_PATH,
    ARGUMENT,
    DAY,
    HOUR,
    KIB,
    MINUTE,
    SHORTEST,
    TEMPLATE_PATH,
    TIB,
    Section,
    SharedSection,
)
from stepwarden.config.shape_sections import (
    NAME,
    AttachSection,
    GroupSection,
    PreStartSection,
    ProgressSection,
    ReadySection,
    ReleaseSection,
)

ENV_NAME = Text(
    "letters, digits and '_', not STEPWARDEN_..., which the supervisor itself sets",
    pattern="(?!STEPWARDEN_)[A-Za-z_][A-Za-z0-9_]*",
    key=True,
)
SOCKET_MODE = Text('an octal mode in quotes, such as "0600" or "0660"', pattern="0[0-7]{3}")
GROUP_RULE = Text("a group name", pattern="[A-Za-z_][A-Za-z0-9_.-]{0,31}[$]?")
UNIT = Text(
    "a systemd service, NAME.service; ${VARIABLES} are replaced",
    pattern=r"[A-Za-z0-9:_.\\@${}-]+\.service",
)
RUNNERS = Choice(("auto", "systemd", "spawn"))
LISTEN = OneOrMore(Address(), none=True)
ENGINES = Choice(("vllm", "sglang", "llama.cpp", "triton", "python"))


class HealthSection(ListenSection):
    """grpc.health.v1: "" is the supervisor, `ready` the crew, `worker/NAME` one of the workers."""

    listen: Annotated[list[str], LISTEN] = Field(
        default=["127.0.0.1:50051"], description="TCP addresses. An empty list: none."
    )
    ready: Annotated[ReadyRuleSection, ALL] = Field(
        default=ReadyRuleSection(),
        description="What `ready` means: all, {at_least: N}, {workers: [NAME, ...]}, or both.",
    )


class AgentsSection(ListenSection):
    """TCP for agents that cannot reach the agent socket: of containers, of other hosts."""

    listen: Annotated[list[str], LISTEN] = Field(
        default=[], description="TCP addresses, beside the agent socket."
    )


class MetricsSection(ListenSection):
    """Metrics for Prometheus, by HTTP at /metrics (docs/metrics.md)."""

    listen: Annotated[list[str], LISTEN] = Field(
        default=[], description='TCP addresses, such as "127.0.0.1:9464". An empty list: none.'
    )


class LogSection(Section):
    """The supervisor's own log, on standard error or in a file."""

    format: Annotated[str, Choice(("auto", "json", "console"))] = Field(
        default="auto", description="auto: console on a terminal, json elsewhere and in a file."
    )
    level: Annotated[str, Choice(("debug", "info", "warning", "error"))] = Field(
        default="info", description="The least severe messages that are written."
    )
    file: Annotated[str | None, ABSOLUTE_PATH] = Field(
        default=None,
        description="Append to this file, in place of standard error. It is opened anew for each"
        " record, so it may be rotated in any way. Without it: standard error.",
    )


class ReloadSection(Section):
    """When the file is read again, besides SIGHUP and `stepwarden reload`."""

    watch: Annotated[bool, Flag()] = Field(
        default=True, description="Read the file again whenever it holds something else."
    )
    interval: Annotated[float, Duration(SHORTEST, MINUTE)] = Field(
        default=1.0,
        description="How often it is looked at. A change counts once two looks found the same.",
    )
    restart: Annotated[str, Choice(("now", "ask"))] = Field(
        default="now",
        description="A worker whose command, environment or user is another one needs another life."
        " now: it is restarted. ask: it goes on, and `status` says so; its next start takes it.",
    )


class GovernorSection(Section):
    """How many workers of this host may die by a verdict, and when none may."""

    deaths: Annotated[int, Whole(1, 100_000)] = Field(
        default=10,
        description="So many deaths by verdict `within` the time, then one each within / deaths."
        " Exits do not count.",
    )
    within: Annotated[float, Duration(1.0, DAY)] = Field(
        default=600.0, description="The time in which `deaths` come back."
    )
    freeze_max: Annotated[float, Duration(1.0, HOUR, "never freezes")] = Field(
        default=300.0,
        description="When more than half of at least 3 independent workers (a group is one) turn"
        " suspect within one retry window, nobody is killed for at most this long.",
    )


class RecordingSection(Section):
    """What the judge saw, kept for `stepwarden replay` in the state directory."""

    max_size: Annotated[int, Size(0, TIB)] = Field(
        default=64 * KIB * KIB,
        description="All files together; the oldest go first. A worker of one rank writes about"
        " 2 MiB a day. 0 records nothing.",
    )


class SupervisorSection(Section):
    """The daemon itself."""

    runtime_dir: Annotated[str, ABSOLUTE_PATH] = Field(
        default="/run/stepwarden", description="Sockets and progress pages; best on tmpfs."
    )
    state_dir: Annotated[str, ABSOLUTE_PATH] = Field(
        default="/var/lib/stepwarden", description="What outlives a reboot: history and state."
    )
    agent_socket: Annotated[str | None, ABSOLUTE_PATH] = Field(
        default=None, description="Where agents report. Without it: agent.sock in runtime_dir."
    )
    admin_socket: Annotated[str | None, ABSOLUTE_PATH] = Field(
        default=None,
        description="Where the command line asks. Without it: admin.sock in runtime_dir.",
    )
    socket_mode: Annotated[str, SOCKET_MODE] = Field(
        default="0600", description="Mode of both sockets, in quotes."
    )
    socket_group: Annotated[str | None, GROUP_RULE] = Field(
        default=None, description="Group that owns both sockets. Without it: the daemon's own."
    )
    on_exit: Annotated[str, Choice(("auto", "stop", "leave"))] = Field(
        default="auto",
        description="What becomes of the workers when the daemon is told to end. stop: all are"
        " stopped. leave: they live on and are adopted by the next daemon. auto: leave for those"
        " of the systemd runner at a restart of the service, else stop.",
    )
    runner: Annotated[str, RUNNERS] = Field(
        default="auto",
        description="How workers are started. systemd: each in a service of its own. spawn: as"
        " children. auto: systemd where it is booted and allowed.",
    )
    stop_limit: Annotated[float, Duration(1.0, 7 * DAY)] = Field(
        default=90.0,
        description="What stops the daemon kills it after this: TimeoutStopSec of its unit, grace"
        " period of its pod. `check` warns of stops that take longer.",
    )
    loop_limit: Annotated[float, Duration(5.0, DAY, "leaves that to others")] = Field(
        default=60.0,
        description="When its own loop has stood still for so long, the daemon ends itself (exit"
        " code 9), for the next one to adopt the workers. Time in which the whole process was"
        " stopped does not count. 0: never.",
    )
    governor: GovernorSection = GovernorSection()
    health: HealthSection = HealthSection()
    reload: ReloadSection = ReloadSection()
    agents: AgentsSection = AgentsSection()
    metrics: MetricsSection = MetricsSection()
    log: LogSection = LogSection()
    incidents: IncidentsSection = IncidentsSection()
    recording: RecordingSection = RecordingSection()


class StepSection(Section):
    """What one step may take: a formula (base, per_seq) or rows, never both.

    Formula: min(base + per_seq * sequences + per_token * tokens, max). Rows: the next row up
    holds, plus per_token * tokens, at most max.
    """

    base: Annotated[float | None, Duration(SHORTEST, DAY)] = Field(
        default=None, description="Formula: seconds for a step of no size. gpu 30s, cpu 300s."
    )
    per_seq: Annotated[float | None, Duration(1e-6, HOUR, "adds nothing")] = Field(
        default=None, description="Formula: added for each sequence. gpu 200ms, cpu 1s, others 0."
    )
    rows: (
        dict[Annotated[int, Whole(1, 10_000_000)], Annotated[float, Duration(SHORTEST, 7 * DAY)]]
        | None
    ) = Field(
        default=None, description="Budget by number of sequences, such as {1: 5s, 8: 8s, 64: 40s}."
    )
    beyond: Annotated[float | None, Duration(SHORTEST, 7 * DAY)] = Field(
        default=None,
        description="Rows: holds for batches larger than the last row. Without it: the last row.",
    )
    per_token: Annotated[float | None, Duration(1e-9, MINUTE, "adds nothing")] = Field(
        default=None, description="Added for each token of the step. Without it: 0."
    )
    max: Annotated[float | None, Duration(SHORTEST, 7 * DAY)] = Field(
        default=None, description="No budget is larger. Without it: 30m."
    )
    hard_cap: Annotated[float | None, Duration(SHORTEST, 7 * DAY)] = Field(
        default=None,
        description="Step time after which even a busy worker is DEAD. Not below budget + window."
        " Without it: busy_factor times the budget, at most max.",
    )


class BackendSection(Section):
    """One kind of hardware or engine. gpu and cpu exist even if they are not named."""

    step: StepSection = StepSection()


class WorkerSection(SharedSection):
    """One supervised server: a command and its whole process tree, a unit, or an attached one."""

    backend: Annotated[str, NAME] = Field(
        default="gpu", description="Which backend's step budgets hold."
    )
    engine: Annotated[str | None, ENGINES] = Field(
        default=None,
        description="What runs. vllm with agent: required gets its own time-outs set above ours.",
    )
    command: list[Annotated[str, ARGUMENT]] | None = Field(
        default=None,
        description="Program and arguments, as a list; no shell. ${VARIABLES} are replaced. This,"
        " or shell, unit, attach.",
    )
    shell: Annotated[str | None, Text("one line for /bin/sh -c")] = Field(
        default=None,
        description="A line for /bin/sh -c, which replaces variables itself. This, or command,"
        " unit, attach.",
    )
    unit: Annotated[str | None, UNIT] = Field(
        default=None,
        description="A systemd service that is started and stopped by systemd on our word; its own"
        " Restart= must be no. This, or command, shell, attach.",
    )
    attach: AttachSection | None = Field(
        default=None,
        description="Something else starts it, and its agent tells of it. This, or command, shell,"
        " unit.",
    )
    runner: Annotated[str | None, RUNNERS] = Field(
        default=None, description="How it is started. Without it: `supervisor.runner`."
    )
    cwd: Annotated[str | None, TEMPLATE_PATH] = Field(
        default=None,
        description="Working directory; ${VARIABLES} are replaced. Without it: the supervisor's"
        " own; in a unit of its own: /.",
    )
    env: dict[
        Annotated[str, ENV_NAME],
        Annotated[str, Text("text; numbers in quotes", "", True, empty=True)],
    ] = Field(
        default={},
        description="Environment variables, over env_file, over the supervisor's own. ${VARIABLES}"
        " of those two are replaced.",
    )
    pre_start: PreStartSection | None = Field(default=None, description="Runs before each start.")
    ready: ReadySection | None = Field(
        default=None,
        description="What tells that it is ready. Without it: its agent; with agent: none, that"
        " its process runs.",
    )
    progress: ProgressSection | None = Field(
        default=None, description="A counter that shows progress where no agent does."
    )
    needs: list[Annotated[str, NAME]] = Field(
        default=[], description="Other workers that must be HEALTHY before this one starts."
    )
    release: ReleaseSection | None = Field(
        default=None, description="What must be free before each start."
    )
    max_num_seqs: Annotated[int, Whole(1, 10_000_000)] = Field(
        default=256,
        description="The engine's largest batch. A step of unknown size counts as this.",
    )
    max_num_batched_tokens: Annotated[int | None, Whole(1, 1_000_000_000)] = Field(
        default=None, description="The engine's largest number of tokens in a step, where known."
    )
    autostart: Annotated[bool, Flag()] = Field(
        default=True, description="false: it waits in STOPPED until an operator starts it."
    )
    step: StepSection = Field(
        default=StepSection(), description="Goes over the backend's step, key by key."
    )


class File(Section):
    """A stepwarden configuration file."""

    supervisor: SupervisorSection = SupervisorSection()
    backends: dict[Annotated[str, NAME], BackendSection] = Field(
        default={}, description="Step budgets by kind of hardware or engine."
    )
    defaults: SharedSection = Field(
        default=SharedSection(), description="For every worker that does not say otherwise."
    )
    groups: dict[Annotated[str, NAME], GroupSection] = Field(
        default={}, description="Workers that belong together, by the group's name."
    )
    workers: dict[Annotated[str, NAME], WorkerSection] = Field(
        min_length=1, description="What is supervised, by name."
    )
