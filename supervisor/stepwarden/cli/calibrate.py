"""`stepwarden calibrate`: budgets for the file, from what was seen of the steps of each worker."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable

from stepwarden.cli.client import add_connection_arguments
from stepwarden.cli.known import Found, find_learned
from stepwarden.config import Config, WorkerConfig, load
from stepwarden.config.effective import as_yaml, effective_yaml
from stepwarden.config.effective_worker import step
from stepwarden.core import calibration
from stepwarden.core.budget import StepRule
from stepwarden.core.calibration import SeenSize, seen_in
from stepwarden.core.learned import ALARM
from stepwarden.core.policy import WorkerPolicy
from stepwarden.errors import ActionFailedError, UnknownWorkerError, UsageError
from stepwarden.naming import counted, unknown

LEAST_FACTOR, MOST_FACTOR = 1.0, 100.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `calibrate`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="one worker (default: all)")
    parser.add_argument(
        "--factor",
        type=_factor,
        default=ALARM,
        metavar="K",
        help="a budget is so many times what is usual (default: %(default)g)",
    )
    parser.add_argument(
        "--rows", action="store_true", help="rows by batch in place of a formula; needs --config"
    )
    parser.add_argument(
        "--whole", action="store_true", help="print the whole file with them in it; needs --config"
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """0; where nothing has been learned there is nothing to print, which is an error."""
    config = None if options.config is None else load(options.config)
    if config is None and (options.rows or options.whole):
        raise UsageError("--rows and --whole need --config FILE, which says what the workers are")
    if config is not None and options.name is not None and options.name not in config.workers:
        raise UnknownWorkerError(unknown("worker", options.name, list(config.workers)))
    found = find_learned(options, options.name or "")
    seen = _seen(found, config)
    if not seen:
        whose = options.name or "any worker"
        raise ActionFailedError(f"nothing has been learned yet of {whose} ({found.source})")
    rules = {name: _rule(_policy(name, config), sizes, options) for name, sizes in seen.items()}
    print("\n".join(_remarks(found, seen, rules, options.factor)))
    if config is not None and options.whole:
        print(effective_yaml(_with_rules(config, rules)), end="")
    else:
        steps = {name: {"step": step(rule, None)} for name, rule in rules.items()}
        print(as_yaml({"workers": steps}), end="")
    return 0


def _seen(found: Found, config: Config | None) -> dict[str, tuple[SeenSize, ...]]:
    """By worker, what its ranks saw; of those alone that the file names, where there is one."""
    names = dict.fromkeys(table.worker for table in found.tables)
    by_worker = {
        name: seen_in(table.usual for table in found.tables if table.worker == name)
        for name in names
        if config is None or name in config.workers
    }
    return {name: sizes for name, sizes in by_worker.items() if sizes}


def _policy(name: str, config: Config | None) -> WorkerPolicy:
    return WorkerPolicy(name) if config is None else config.workers[name].policy


def _rule(
    policy: WorkerPolicy, seen: tuple[SeenSize, ...], options: argparse.Namespace
) -> StepRule:
    frame = (options.factor, policy.learn_floor, policy.step.maximum)
    if options.rows:
        return calibration.rows(seen, *frame, policy.max_num_seqs)
    return calibration.formula(seen, *frame)


def _with_rules(config: Config, rules: dict[str, StepRule]) -> Config:
    workers = {
        name: _with_rule(worker, rules[name]) if name in rules else worker
        for name, worker in config.workers.items()
    }
    return dataclasses.replace(config, workers=workers)


def _with_rule(worker: WorkerConfig, rule: StepRule) -> WorkerConfig:
    return dataclasses.replace(worker, policy=dataclasses.replace(worker.policy, step=rule))


def _remarks(
    found: Found,
    seen: dict[str, tuple[SeenSize, ...]],
    rules: dict[str, StepRule],
    factor: float,
) -> Iterable[str]:
    """What stands behind the numbers, as comments."""
    steps = sum(one.steps for sizes in seen.values() for one in sizes)
    yield (
        f"# Budgets of {factor:g} times what is usual, from {counted(steps, 'step')} that"
        f" {found.source} knows of."
    )
    for name, sizes in seen.items():
        yield f"# {name}:"
        for one in sizes:
            budget = rules[name].budget(1, one.least).seconds
            wanted = factor * one.seconds
            held = "" if budget >= wanted else f", held at max, below {wanted:.3g} s"
            yield (
                f"#   {one.least} to {one.most} tokens: usual {one.seconds:.3g} s of"
                f" {counted(one.steps, 'step')}; budget {budget:.3g} s{held}"
            )


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not LEAST_FACTOR <= factor <= MOST_FACTOR:
        accepted = f"a number from {LEAST_FACTOR:g} to {MOST_FACTOR:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is not {accepted}")
    return factor
