"""What is allowed and yet hardly meant, as warnings."""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.config.engine_checks import check_engine
from stepwarden.config.fields import split_address
from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.settings import SupervisorSettings, WorkerConfig
from stepwarden.config.values import parse_whole, seconds_text
from stepwarden.core.budget import Formula, Rows
from stepwarden.core.policy import AGENT_NONE, WorkerPolicy
from stepwarden.exposure import exposed
from stepwarden.redaction import redacted_argv, redacted_line

_BATCH_OPTIONS = ("--max-num-seqs", "--max_num_seqs")


def check_supervisor(settings: SupervisorSettings, findings: Findings) -> None:
    """Say what looks wrong about the daemon's own settings."""
    for position, address in enumerate(settings.agents.addresses):
        if settings.agents.insecure and exposed([split_address(address)[0]], False, False):
            path = ("supervisor", "agents", "listen", position)
            message = f"other hosts can reach {address}, and tokens of workers travel as plain text"
            findings.warning(path, message)
    if settings.socket_mode & 0o007:
        message = "every user of this host may use the sockets, the admin socket too"
        findings.warning(("supervisor", "socket_mode"), message)


def check_worker(
    worker: WorkerConfig, findings: Findings, environment: Mapping[str, str], group: str = ""
) -> None:
    """Say everything that looks wrong about one worker that can be used; `group`: its name."""
    _check_backend(worker, findings)
    _check_heartbeat(worker, findings)
    _check_restart(worker, findings, group)
    _check_caps(worker, findings)
    _check_step(worker, findings)
    _check_batch(worker, findings)
    _check_secrets(worker, findings)
    check_engine(worker, findings, environment)


def _check_backend(worker: WorkerConfig, findings: Findings) -> None:
    path: Path = ("workers", worker.name)
    if worker.policy.agent == AGENT_NONE:
        return  # its steps are not watched, so no budget of a backend ever counts
    if not findings.written((*path, "backend")) and not findings.written((*path, "step")):
        findings.warning(path, f"no backend is named; the budgets of {worker.policy.backend} hold")


def _check_heartbeat(worker: WorkerConfig, findings: Findings) -> None:
    interval, timeout = worker.heartbeat_interval, worker.policy.heartbeat_timeout
    if timeout < 3 * interval:
        findings.warning(
            findings.home(worker.name, "heartbeat"),
            f"timeout {seconds_text(timeout)} is less than 3 intervals of"
            f" {seconds_text(interval)}: two late beats look like silence",
        )


def _check_restart(worker: WorkerConfig, findings: Findings, group: str) -> None:
    policy, restart = worker.policy, worker.policy.restart
    if restart.on == "never":
        return
    path: Path = findings.home(worker.name, "restart")
    if group:
        path = ("groups", group, "restart")
    if restart.max_delay < restart.delay:
        findings.warning(path, f"delay is cut to max_delay, {seconds_text(restart.max_delay)}")
    cycle = policy.startup + policy.window + restart.delay
    if restart.limit * cycle > restart.within and _own_count(policy, cycle):
        findings.warning(
            path,
            f"{restart.limit} hangs at start take longer than within,"
            f" {seconds_text(restart.within)}: limit * (startup + window + delay) ="
            f" {seconds_text(restart.limit * cycle)}; only the row of deaths without stable"
            " uptime ends them",
        )


def _own_count(policy: WorkerPolicy, cycle: float) -> bool:
    """Whether the count is the file's own: its limit, its time, or lives that take longer.

    The shipped values need no word: deaths in a row without stable uptime count for them too. Nor
    does what only comes nearer to `within`, such as a shorter delay.
    """
    shipped = WorkerPolicy("shipped")
    usual, restart = shipped.restart, policy.restart
    if (restart.limit, restart.within) != (usual.limit, usual.within):
        return True
    return cycle > shipped.startup + shipped.window + usual.delay


def _check_caps(worker: WorkerConfig, findings: Findings) -> None:
    policy, caps = worker.policy, worker.policy.hard_caps
    tokens = worker.max_num_batched_tokens
    step = policy.step_budget(policy.max_num_seqs, tokens).seconds
    own_step = findings.written(("workers", worker.name, "step", "hard_cap"))
    step_path: Path = ("workers", worker.name) if own_step else ("backends", policy.backend)
    for path, cap, seconds in (
        ((*step_path, "step", "hard_cap"), caps.step, step),
        (findings.home(worker.name, "startup", "hard_cap"), caps.startup, policy.startup),
        (
            findings.home(worker.name, "heartbeat", "hard_cap"),
            caps.heartbeat,
            policy.heartbeat_timeout,
        ),
    ):
        if cap is not None and cap < seconds + policy.window:
            least = seconds_text(seconds + policy.window)
            message = f"{seconds_text(cap)} is below budget + window of worker {worker.name}"
            findings.warning(path, f"{message}; {least} holds instead")


def _check_step(worker: WorkerConfig, findings: Findings) -> None:
    step, policy = worker.policy.step, worker.policy
    own: Path = ("workers", worker.name, "step")
    path = own if findings.written(own) else ("backends", policy.backend, "step")
    highest = step.base if isinstance(step, Formula) else step.rows[-1][1]
    if highest > step.maximum:
        message = f"{seconds_text(highest)} is above max; {seconds_text(step.maximum)} holds"
        findings.warning(path, message)
    said = findings.written(("workers", worker.name, "max_num_seqs"))
    if isinstance(step, Rows) and step.beyond is None and said:
        last, seconds = step.rows[-1]
        if policy.max_num_seqs > last:
            findings.warning(
                ("workers", worker.name, "max_num_seqs"),
                f"batches beyond the last row {last} get its budget, {seconds_text(seconds)};"
                " add a row, or beyond",
            )


def _check_secrets(worker: WorkerConfig, findings: Findings) -> None:
    """Command lines are open to every user, whatever we hide; so what looks like one is told."""
    short = (worker.pre_start, worker.stop_command)
    commands: list[tuple[Path, tuple[str, ...]]] = [(("command",), worker.command or ())]
    commands += [
        ((key, "command"), command.argv)
        for key, command in zip(("pre_start", "stop"), short, strict=True)
        if command is not None
    ]
    hidden = [keys for keys, argv in commands if redacted_argv(argv) != list(argv)]
    if worker.shell is not None and redacted_line(worker.shell) != worker.shell:
        hidden.append(("shell",))
    for keys in hidden:
        message = "holds a secret, and every user of this host can read command lines"
        findings.warning(findings.home(worker.name, *map(str, keys)), f"{message}; use env_file")


def _check_batch(worker: WorkerConfig, findings: Findings) -> None:
    batch = _batch_option(worker.command or ())
    if batch is not None and batch != worker.policy.max_num_seqs:
        findings.warning(
            ("workers", worker.name, "max_num_seqs"),
            f"is {worker.policy.max_num_seqs}, and the command says {batch}",
        )


def _batch_option(command: tuple[str, ...]) -> int | None:
    """The largest batch that the engine's own command line names, if any."""
    for position, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name in _BATCH_OPTIONS:
            following = command[position + 1] if position + 1 < len(command) else ""
            return parse_whole(value if equals else following)
    return None
