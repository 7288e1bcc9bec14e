"""stepwarden explain: what one step may take, with the formula and the numbers put in."""

from __future__ import annotations

import argparse
import dataclasses
import json

from stepwarden.cli.arguments import path
from stepwarden.cli.known import find_learned
from stepwarden.config import BackendConfig, WorkerConfig, load
from stepwarden.config.explanation import explain
from stepwarden.config.learned_explanation import LearnedExplanation, explain_learned
from stepwarden.core.budget import SHIPPED
from stepwarden.core.policy import HardCaps, WorkerPolicy
from stepwarden.errors import StepwardenError, UnknownWorkerError, UnreachableError, UsageError
from stepwarden.naming import shown, unknown

MOST = 1_000_000_000
ASKING_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--backend", metavar="NAME", help="a backend; gpu and cpu need no file")
    asked.add_argument("--worker", metavar="NAME", help="a worker of the file")
    parser.add_argument(
        "--num-seqs", type=_count, metavar="N", help="sequences (default: the worker's largest)"
    )
    parser.add_argument("--num-tokens", type=_count, metavar="T", help="tokens (default: unknown)")
    parser.add_argument("--config", type=path, metavar="FILE", help="the configuration file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """0; a name that is not there is a usage error (backend) or an unknown worker."""
    worker = _worker(options) if options.worker else _stand_in(options)
    answer = explain(worker, options.num_seqs, options.num_tokens)
    learned, trouble = _learned(worker, options) if options.worker else ([], "")
    if options.json:
        more = {"learn": worker.policy.learn, "learned": [one.as_json() for one in learned]}
        print(json.dumps(answer.as_json() | (more if options.worker else {}), indent=2))
        return 0
    print("\n".join(answer.lines()))
    for one in learned:
        print("\n".join(one.lines(worker.policy.learn)))
    if trouble:
        print(f"note      what was learned is not known: {trouble}")
    return 0


def _learned(
    worker: WorkerConfig, options: argparse.Namespace
) -> tuple[list[LearnedExplanation], str]:
    """What the daemon, or its state, knows of this worker; or why that cannot be told."""
    asked = argparse.Namespace(config=options.config, socket=None, timeout=ASKING_SECONDS)
    try:
        found = find_learned(asked, worker.name)
    except (UnreachableError, UnknownWorkerError):
        return [], ""  # nobody has run it yet, or not under this name
    except StepwardenError as error:
        return [], str(error)
    shape = (options.num_seqs, options.num_tokens)
    return [
        explain_learned(worker, shape, (one.rank, one.of, one.usual), found.source, one.lived)
        for one in found.tables
    ], ""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:11]) <= MOST and len(text) < 11):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number from 1 to {MOST}")
    return int(text)


def _worker(options: argparse.Namespace) -> WorkerConfig:
    if options.config is None:
        raise UsageError("--worker needs --config FILE, which says what the worker is")
    workers = load(options.config).workers
    if options.worker not in workers:
        raise UnknownWorkerError(unknown("worker", options.worker, list(workers)))
    return workers[options.worker]


def _stand_in(options: argparse.Namespace) -> WorkerConfig:
    """A worker without a name that has this backend, and else what the file's defaults say."""
    if options.num_seqs is None:
        raise UsageError("--backend needs --num-seqs N")
    plain = WorkerConfig("", WorkerPolicy(""))
    backends = {name: BackendConfig(name, step) for name, step in SHIPPED.items()}
    if options.config is not None:
        config = load(options.config)
        plain, backends = config.plain_worker, config.backends
    if options.backend not in backends:
        raise UsageError(unknown("backend", options.backend, list(backends)))
    backend = backends[options.backend]
    caps: HardCaps = dataclasses.replace(plain.policy.hard_caps, step=backend.hard_cap)
    policy = dataclasses.replace(
        plain.policy, backend=backend.name, step=backend.step, hard_caps=caps
    )
    return dataclasses.replace(plain, policy=policy)
