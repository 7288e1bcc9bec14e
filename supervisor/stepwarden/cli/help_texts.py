"""What `COMMAND --help` says beyond its arguments: how it is used, and its exit codes."""

from __future__ import annotations

from stepwarden.errors import ExitCode

CODES = {
    ExitCode.OK: "done",
    ExitCode.INTERNAL: "a fault of stepwarden's own, or the host has nothing left to give",
    ExitCode.USAGE: "the command line is wrong, or a package is missing",
    ExitCode.UNREACHABLE: "no daemon answers at the socket, or not within the timeout",
    ExitCode.UNKNOWN_WORKER: "there is no worker, or no incident, of this name",
    ExitCode.ACTION_FAILED: "the daemon took the command and it did not come about",
    ExitCode.REFUSED: "a socket, a directory or an address may not, or cannot, be used",
    ExitCode.ALREADY_RUNNING: "another daemon or process holds what is needed",
    ExitCode.NOT_WELL: "with --check: not all is well; doctor: there is a problem",
    ExitCode.LOOP_STUCK: "the daemon ended itself: its loop had stopped turning",
    ExitCode.CONFIG: "the configuration file cannot be used",
}
INTERRUPTED = 130

_E = ExitCode
_ASKING = (_E.OK, _E.INTERNAL, _E.USAGE, _E.UNREACHABLE, _E.REFUSED)

# command: (what it does, examples, exit codes); a command that is not here has its one line.
TEXTS: dict[str, tuple[str, tuple[str, ...], tuple[ExitCode, ...]]] = {
    "run": (
        "Reads the file, starts its workers and supervises them until SIGTERM or SIGINT;"
        " SIGHUP has the file read again."
        " It stays in the foreground and logs to standard error.",
        ("stepwarden run /etc/stepwarden/stepwarden.yaml",),
        (
            *(_E.OK, _E.INTERNAL, _E.USAGE, _E.REFUSED),
            *(_E.ALREADY_RUNNING, _E.LOOP_STUCK, _E.CONFIG),
        ),
    ),
    "check": (
        "Names all problems of a configuration file at once, each as FILE:LINE:COLUMN. No daemon"
        " is asked, and nothing is changed.",
        (
            "stepwarden check stepwarden.yaml",
            "stepwarden check stepwarden.yaml --strict --json",
            "stepwarden check stepwarden.yaml --effective > what-holds.yaml",
        ),
        (_E.OK, _E.INTERNAL, _E.USAGE, _E.CONFIG),
    ),
    "explain": (
        "Says what one step may take, with the formula and the numbers put in. Needs no daemon."
        " Of a worker it also tells what was learned, as the daemon or its state directory has it.",
        (
            "stepwarden explain --backend cpu --num-seqs 16",
            "stepwarden explain --config stepwarden.yaml --worker gemma-cpu --num-seqs 16",
        ),
        (_E.OK, _E.INTERNAL, _E.USAGE, _E.UNKNOWN_WORKER, _E.CONFIG),
    ),
    "calibrate": (
        "Makes step budgets from what was learned of each worker's steps: a formula (or rows) that"
        " covers every size seen, with the steps behind it as comments. The daemon is asked, or"
        " without one its state directory is read.",
        (
            "stepwarden calibrate --config stepwarden.yaml",
            "stepwarden calibrate gemma-cpu --factor 10 --rows --config stepwarden.yaml",
            "stepwarden calibrate --config stepwarden.yaml --whole > new.yaml",
        ),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.ACTION_FAILED, _E.CONFIG),
    ),
    "replay": (
        "Judges again what a daemon recorded of each call into its judge, and says whether the same"
        " alarms, deaths and restarts come of it. With --config: what the rules of that file would"
        " have changed. A step trace of another program (CSV, a step a line: begin, seconds,"
        " num_seqs, num_tokens) is judged too. Needs no daemon.",
        (
            "stepwarden replay /var/lib/stepwarden",
            "stepwarden replay /var/lib/stepwarden --config new.yaml --worker gemma-cpu",
            "stepwarden replay steps.csv --backend cpu",
        ),
        (
            _E.OK,
            _E.INTERNAL,
            _E.USAGE,
            _E.UNKNOWN_WORKER,
            _E.ACTION_FAILED,
            _E.CONFIG,
        ),
    ),
    "doctor": (
        "Looks at the host, the file, the daemon and the engines' environments as an experienced"
        " operator would, and says what to do. Nothing is changed, and no command of the file is"
        " run. With --engine-dead: which time-out fired, and what to change.",
        (
            "stepwarden doctor stepwarden.yaml",
            "stepwarden doctor stepwarden.yaml --worker gemma-cpu --quiet",
            "stepwarden doctor stepwarden.yaml --engine-dead gemma-cpu",
        ),
        (_E.OK, _E.INTERNAL, _E.USAGE, _E.UNKNOWN_WORKER, _E.NOT_WELL, _E.CONFIG),
    ),
    "schema": (
        "Prints the JSON Schema of the configuration file, for editors, or its reference page.",
        ("stepwarden schema > stepwarden.schema.json", "stepwarden schema --markdown | less"),
        (_E.OK, _E.INTERNAL, _E.USAGE),
    ),
    "status": (
        "Shows every worker on a line, and the last verdict on each that is not well; with NAME"
        " everything known of one: its ranks, its last verdicts with their reasons, its lives.",
        (
            "stepwarden status",
            "stepwarden status gemma-cpu --last 20",
            "stepwarden status --check --unwell || page-somebody",
            "stepwarden status --json | jq -r '.unwell[]'",
        ),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.NOT_WELL),
    ),
    "top": (
        "Shows all workers live on the whole terminal, with the latest events; keys stop, start and"
        " restart the worker at the cursor, each after a question. Press ? for all keys.",
        ("stepwarden top", "NO_COLOR=1 stepwarden top --config stepwarden.yaml"),
        _ASKING,
    ),
    "events": (
        "Shows what happened, the oldest first, and with --follow what happens. Without a daemon"
        " the past is read from its state directory.",
        (
            "stepwarden events --since 1h",
            "stepwarden events --worker gemma-cpu --kind transition,false_alarm",
            "stepwarden events --follow --json | jq .sentence",
        ),
        (*_ASKING, _E.UNKNOWN_WORKER),
    ),
    "incidents": (
        "Lists the bundles that were kept of UNHEALTHY and DEAD workers; with show ID the stacks,"
        " their comparison, the verdicts and the last output of one; with export ID the whole"
        " bundle as a tar.gz. Without a daemon the state directory is read.",
        (
            "stepwarden incidents --worker gemma-cpu --since 1d",
            "stepwarden incidents show 20260102T030405678Z-gemma-cpu-1-dead-9f3a",
            "stepwarden incidents export 20260102T030405678Z-gemma-cpu-1-dead-9f3a - | tar tz",
        ),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.ACTION_FAILED),
    ),
    "ledger": (
        "Scores each alarm and each death by verdict of the history: confirmed, false or undecided,"
        " by cause, diagnosis and rule, with the precision and the median times to detect and to"
        " recover; and says what learn: on would have changed. Without a daemon the state directory"
        " is read.",
        (
            "stepwarden ledger --since 7d",
            "stepwarden ledger --worker gemma-cpu --json | jq .rows",
        ),
        (*_ASKING, _E.UNKNOWN_WORKER),
    ),
    "start": (
        "Starts a stopped or failed worker, its counters at zero. Returns when its new life has"
        " begun, with --ready when it is HEALTHY.",
        ("stepwarden start gemma-cpu", "stepwarden start gemma-cpu --ready --wait 900"),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.ACTION_FAILED),
    ),
    "stop": (
        "Stops a worker with its grace. It stays stopped until it is started, over restarts of the"
        " daemon and of the host.",
        ("stepwarden stop gemma-cpu", "stepwarden stop gemma-cpu --no-wait"),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.ACTION_FAILED),
    ),
    "restart": (
        "Stops a worker and starts it again, its counters at zero.",
        ("stepwarden restart gemma-cpu", "stepwarden restart gemma-cpu --ready --wait 900"),
        (*_ASKING, _E.UNKNOWN_WORKER, _E.ACTION_FAILED),
    ),
    "reload": (
        "Has the daemon read its configuration file again: all of it, or nothing where it has a"
        " problem. Only workers whose command, environment or user changed are restarted.",
        ("stepwarden reload --dry-run", "stepwarden reload"),
        (*_ASKING, _E.ACTION_FAILED, _E.CONFIG),
    ),
    "completion": (
        "Prints what a shell needs to complete commands, options and names of workers.",
        (
            "stepwarden completion bash > /etc/bash_completion.d/stepwarden",
            "stepwarden completion zsh > /usr/share/zsh/vendor-completions/_stepwarden",
            "stepwarden completion fish > /usr/share/fish/vendor_completions.d/stepwarden.fish",
        ),
        (_E.OK, _E.INTERNAL, _E.USAGE),
    ),
    "help": (
        "Prints the manual: every command with its arguments, examples and exit codes; with --man"
        " as a manual page.",
        (
            "stepwarden help | less",
            "stepwarden help status",
            "stepwarden help --man > /usr/local/share/man/man1/stepwarden.1",
        ),
        (_E.OK, _E.INTERNAL, _E.USAGE),
    ),
}


def examples_and_codes(command: str) -> str:
    """What stands below the arguments in --help; "" for a command without texts."""
    if command not in TEXTS:
        return ""
    _, examples, codes = TEXTS[command]
    lines = ["examples:", *(f"  {example}" for example in examples), "", "exit codes:"]
    lines += [f"  {int(code):>3}  {CODES[code]}" for code in sorted(codes)]
    return "\n".join([*lines, f"  {INTERRUPTED}  interrupted with Ctrl-C"])
