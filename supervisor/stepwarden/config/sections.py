"""The sections that a worker and `defaults:` share. Every default here is a shipped one."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from stepwarden.config.fields import Choice, Duration, Number, Text, Whole
from stepwarden.config.quantities import Account, Count, OneOrMore, Size

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0
SHORTEST = 0.1

ABSOLUTE_PATH = Text("an absolute path", pattern=r"/[^\x00\n]*")
TEMPLATE_PATH = Text("an absolute path; ${VARIABLES} are replaced", pattern=r"(/|\$\{)[^\x00\n]*")
ARGUMENT = Text("text; numbers in quotes", secret=True, empty=True)
UMASK = Text('an octal mask in quotes, such as "0027"', pattern="0[0-7]{3}")
KIB = 1024
TIB = KIB**4
BYTES = Size(0, 2**62, unlimited=True)
AGENT_MODES = Choice(("required", "optional", "none"))
LEARN_MODES = Choice(("off", "observe", "on"))
JUDGING = Choice(("enforce", "observe"))
SIGNALS = Choice(("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "KILL"))


class Section(BaseModel):
    """A mapping in the file: unknown keys are refused, nothing is converted by guess."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


S = TypeVar("S", bound=Section)


def keys_of(section: type[Section]) -> dict[str, str]:
    """The keys of a section as the file writes them, each with the attribute that holds it."""
    return {field.alias or name: name for name, field in section.model_fields.items()}


def put_over(base: S, said: Section) -> S:
    """`base` with what `said` really says put over it, key by key, sections inside included."""
    changes: dict[str, object] = {}
    for name in said.model_fields_set & type(base).model_fields.keys():
        mine, other = getattr(said, name), getattr(base, name)
        inner = isinstance(mine, Section) and isinstance(other, Section)
        changes[name] = put_over(other, mine) if inner else mine
    return base.model_copy(update=changes)


class HeartbeatSection(Section):
    """Beats: proof that the agent of a rank lives, nothing more."""

    interval: Annotated[float, Duration(SHORTEST, MINUTE)] = Field(
        default=1.0, description="How often an agent sends a beat."
    )
    timeout: Annotated[float, Duration(0.5, DAY)] = Field(
        default=30.0,
        description="Silence (no beat, and a page that does not move) after which the worker"
        " becomes UNHEALTHY.",
    )
    hard_cap: Annotated[float | None, Duration(SHORTEST, 7 * DAY)] = Field(
        default=None,
        description="Silence after which even a busy worker is DEAD. Not below timeout + window."
        " Without it: busy_factor times the timeout, at most the backend's max.",
    )


class StartupSection(Section):
    """From spawn to the first sign that the worker is ready."""

    budget: Annotated[float, Duration(SHORTEST, DAY)] = Field(
        default=600.0, description="From spawn until every rank is past loading and warmup."
    )
    first_step: Annotated[
        float, Duration(SHORTEST, DAY, "gives no allowance: the plain budget holds")
    ] = Field(
        default=120.0,
        description="The first step after a start may take this long (graph capture, JIT) where"
        " its own budget is smaller.",
    )
    hard_cap: Annotated[float | None, Duration(SHORTEST, 7 * DAY)] = Field(
        default=None,
        description="Start after which even a busy worker is DEAD. Not below budget + window."
        " Without it: busy_factor times the budget, at most the backend's max.",
    )


class RetrySection(Section):
    """What happens between a passed deadline and death."""

    window: Annotated[float, Duration(SHORTEST, HOUR)] = Field(
        default=30.0,
        description="How long evidence is gathered in UNHEALTHY before a verdict. A working rank"
        " is given another window, up to the hard cap.",
    )
    busy_cpu: Annotated[float, Number(0.1, 6400)] = Field(
        default=5.0,
        description="A rank works when its CPU over the window is above this percentage of one"
        " core.",
    )


class RestartTimes(Section):
    """How often and how soon."""

    delay: Annotated[float, Duration(SHORTEST, HOUR, "starts at once")] = Field(
        default=10.0, description="Before the first restart."
    )
    factor: Annotated[float, Number(1, 100)] = Field(
        default=2.0, description="Each further delay is longer by this factor."
    )
    max_delay: Annotated[float, Duration(SHORTEST, DAY, "for none")] = Field(
        default=300.0, description="No delay is longer than this."
    )
    jitter: Annotated[float, Number(0, 1)] = Field(
        default=0.25, description="Each delay is spread by up to this share of itself."
    )
    limit: Annotated[int, Whole(1, 100_000)] = Field(
        default=5,
        description="So many deaths within `within`, or in a row without `stable` uptime between"
        " them, and the worker is FAILED.",
    )
    within: Annotated[float, Duration(1.0, 30 * DAY)] = Field(
        default=1800.0, description="The time in which `limit` counts."
    )
    stable: Annotated[float, Duration(SHORTEST, 7 * DAY)] = Field(
        default=600.0, description="Uptime after which delays and the row of deaths start anew."
    )


class RestartSection(RestartTimes):
    """When and how often a dead worker is started again."""

    on: Annotated[str, Choice(("any_exit", "failure", "never"))] = Field(
        default="any_exit",
        description="any_exit: after every death, exit code 0 included. failure: not after exit"
        " code 0. never: a dead worker stays down, and the other keys must not be written.",
    )
    expect_external: Annotated[float, Duration(SHORTEST, 7 * DAY)] = Field(
        default=600.0,
        description="With attach only: what starts the worker has this long to bring it (back)"
        " before it is FAILED.",
    )


class StopSection(Section):
    """How a worker's process tree is ended. The command first, then the signal, then KILL."""

    command: list[Annotated[str, ARGUMENT]] | None = Field(
        default=None,
        description="Runs first, such as [docker, stop, NAME]. Without it: the signal alone.",
    )
    timeout: Annotated[float, Duration(SHORTEST, DAY)] = Field(
        default=30.0, description="How long `command` may take; then the signal is sent anyway."
    )
    signal: Annotated[str, SIGNALS] = Field(
        default="TERM", description="The first signal to the whole tree."
    )
    grace: Annotated[float, Duration(SHORTEST, DAY)] = Field(
        default=30.0, description="From that signal until KILL. Not with signal KILL."
    )


class OutputSection(Section):
    """Where the worker's standard output and error go."""

    mode: Annotated[str, Choice(("inherit", "append", "capture"))] = Field(
        default="inherit",
        description="inherit: the supervisor's own output. append: added to the file at `path`."
        " capture: kept in files of limited size, in the directory `path`; `status` shows the last"
        " lines.",
    )
    path: Annotated[str | None, TEMPLATE_PATH] = Field(
        default=None,
        description="append, which needs it: the file. capture: the worker's own directory; without"
        " it output/NAME in state_dir. ${VARIABLES} are replaced.",
    )
    max_file: Annotated[int, Size(64 * KIB, TIB)] = Field(
        default=100 * KIB * KIB, description="capture: a file of this size is put aside."
    )
    keep: Annotated[int, Whole(0, 1000)] = Field(
        default=5, description="capture: so many files that were put aside are kept."
    )


class LimitsSection(Section):
    """Resource limits, soft and hard alike. unlimited lifts one."""

    nofile: Annotated[int | None, Count()] = Field(default=None, description="Open files.")
    nproc: Annotated[int | None, Count()] = Field(
        default=None, description="Processes and threads of the user."
    )
    memlock: Annotated[int | None, BYTES] = Field(default=None, description="Locked memory.")
    core: Annotated[int | None, BYTES] = Field(default=None, description="Core dump; 0: none.")
    stack: Annotated[int | None, BYTES] = Field(default=None, description="Stack.")
    address_space: Annotated[int | None, BYTES] = Field(
        default=None, alias="as", description="Address space of one process."
    )
    fsize: Annotated[int | None, BYTES] = Field(default=None, description="Files it writes.")


class SharedSection(Section):
    """Keys of `defaults:` and of each worker; what a worker says goes over the defaults."""

    agent: Annotated[str, AGENT_MODES] = Field(
        default="required",
        description="required: every rank must report its steps. optional: steps are judged where"
        " an agent reports. none: only the process is watched.",
    )
    heartbeat: HeartbeatSection = HeartbeatSection()
    startup: StartupSection = StartupSection()
    retry: RetrySection = RetrySection()
    mode: Annotated[str, JUDGING] = Field(
        default="enforce",
        description="enforce: a dead worker is ended and started again. observe: it is judged, what"
        " would be done is recorded, and nothing is signalled.",
    )
    busy_factor: Annotated[float, Number(1, 1000)] = Field(
        default=4.0,
        description="The hard cap is this factor times the budget, at most the backend's max and"
        " never below budget + window.",
    )
    restart: RestartSection = RestartSection()
    stop: StopSection = StopSection()
    drain: Annotated[float, Duration(SHORTEST, DAY, "judges steps as ever")] = Field(
        default=55.0,
        description="While its agent says draining, steps are not judged; this long at most.",
    )
    lease_cap: Annotated[float, Duration(SHORTEST, DAY, "ignores all leases")] = Field(
        default=1800.0,
        description="A declared long operation (lease) extends a deadline by at most this.",
    )
    learn: Annotated[str, LEARN_MODES] = Field(
        default="observe",
        description="What a step of its size usually takes is learned (docs/learning.md). on: the"
        " deadlines of steps follow it. observe: it is shown, and what it would have done is noted;"
        " the budgets written here hold. off: nothing is learned.",
    )
    learn_floor: Annotated[float, Duration(SHORTEST, DAY)] = Field(
        default=10.0,
        description="No learned deadline of a step is below this; none is above the `max` of its"
        " budget, or later than its `hard_cap`.",
    )
    output: OutputSection = OutputSection()
    user: Annotated[str | None, Account("user")] = Field(
        default=None, description="Runs as this user, by name or number. Without it: the daemon's."
    )
    group: Annotated[str | None, Account("group")] = Field(
        default=None, description="By name or number. Without it: the user's own group."
    )
    umask: Annotated[str | None, UMASK] = Field(
        default=None, description="In quotes, in octal. Without it: the daemon's own."
    )
    nice: Annotated[int | None, Whole(-20, 19)] = Field(
        default=None, description="Priority, 19 the lowest. Without it: the daemon's own."
    )
    limits: LimitsSection = LimitsSection()
    env_file: Annotated[list[str], OneOrMore(TEMPLATE_PATH)] = Field(
        default=[],
        description="Files of KEY=VALUE lines, read at each start; the later wins, env wins over"
        " all. For secrets: mode 0640, owned by the daemon's group.",
    )
