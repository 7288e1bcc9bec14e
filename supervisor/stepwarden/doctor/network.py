"""Proxies that would swallow local calls, and ports that somebody else has."""

from __future__ import annotations

import errno
import ipaddress
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stepwarden.config import WorkerConfig
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, problem, unknown, warning
from stepwarden.doctor.subject import Subject
from stepwarden.edge.port_holders import Port, bind_fault, holders

THEME = "network"
PROXIES = ("grpc_proxy", "http_proxy", "https_proxy", "all_proxy")
LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Proxies:
    """Which workers have proxies in their environment that hold for local addresses too.

    Names of variables only: their values may hold passwords.
    """

    workers: Mapping[str, tuple[str, ...]]
    covered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listens:
    """`taken`: address -> (key, why, by whom) of those we could not listen on.

    `unnamed`: addresses that are no literal ones. `shared`: a port -> workers that both name it.
    """

    runs: bool
    addresses: int
    taken: Mapping[str, tuple[str, str, str]]
    unnamed: tuple[str, ...]
    shared: Mapping[str, tuple[str, ...]]


def proxies_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The proxy variables that are set, as they are written."""
    lower = {name for name in environment if name.lower() in PROXIES and environment[name]}
    return tuple(sorted(lower))


def spares_local(environment: Mapping[str, str]) -> bool:
    """Whether no_proxy takes local addresses out."""
    words: set[str] = set()
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        words |= {word.strip() for word in environment.get(name, "").split(",")}
    return "*" in words or all(name in words for name in LOCAL)


def gather_proxies(subject: Subject) -> Proxies:
    """Looks at what each worker would be given."""
    found, covered = {}, []
    for worker in subject.started:
        environment = subject.environment_of(worker)
        proxies = proxies_of(environment)
        if proxies and spares_local(environment):
            covered.append(worker.name)
        elif proxies:
            found[worker.name] = proxies
    return Proxies(found, tuple(covered))


def judge_proxies(facts: Proxies) -> Iterator[Finding]:
    """stepwarden and its agent never ask them on local addresses; engines do."""
    if facts.workers:
        variables = sorted({name for found in facts.workers.values() for name in found})
        yield warning(
            f"{', '.join(variables)} in the environment of {names(list(facts.workers))}, and"
            " no_proxy does not name localhost and 127.0.0.1: gRPC and HTTP of the engine itself to"
            " local addresses may go to the proxy (stepwarden and its agent ask none there)",
            'env: {no_proxy: "localhost,127.0.0.1,::1"} at these workers',
        )
    elif facts.covered:
        yield ok(f"proxies are set for {names(facts.covered)}, and no_proxy spares local addresses")
    else:
        yield ok("no proxy in the environment of any worker")


def gather_ports(subject: Subject) -> Listens:
    """Tries to bind, for an instant, what a daemon that does not run would listen on."""
    taken: dict[str, tuple[str, str, str]] = {}
    unnamed = []
    runs = subject.daemon.runs
    addresses = list(_addresses(subject))
    for key, address in () if runs else addresses:
        port = _port(address)
        if port is None:
            unnamed.append(address)
            continue
        fault = bind_fault(port) if port.number else 0
        if fault:
            why = os.strerror(fault)
            taken[address] = key, why, holders(port) if fault == errno.EADDRINUSE else ""
    shared = _shared_ports(subject.started)
    return Listens(runs, len(addresses), taken, tuple(unnamed), shared)


def judge_ports(facts: Listens) -> Iterator[Finding]:
    """Ours must be free, or be ours; two workers must not have one between them."""
    for address, (key, why, who) in facts.taken.items():
        advice = "end what has it, or change the address" if who else f"change supervisor.{key}"
        yield problem(f"supervisor.{key}: {address} cannot be had: {why}{who}", advice)
    if facts.unnamed:
        yield unknown(f"not tried, as no literal address: {', '.join(facts.unnamed)}")
    for port, workers in facts.shared.items():
        yield problem(f"--port {port} stands at {' and '.join(workers)}", "a port for each")
    if facts.runs and facts.addresses:
        yield ok("the daemon runs and has its addresses")
    elif not facts.taken:
        yield ok(f"nobody else has what the daemon listens on ({facts.addresses} by TCP)")


def _addresses(subject: Subject) -> Iterator[tuple[str, str]]:
    settings = subject.settings
    for key in ("health", "metrics", "agents"):
        for address in getattr(settings, key).addresses:
            yield f"{key}.listen", address


def _port(address: str) -> Port | None:
    host, _, number = address.rpartition(":")
    host = host.strip("[]")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(host)
        return Port(int(number), host)
    except ValueError:
        return None


def _shared_ports(workers: Iterable[WorkerConfig]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, list[str]] = defaultdict(list)
    for worker in workers:
        words = list(worker.command or ())
        for at, word in enumerate(words):
            name, _, value = word.partition("=")
            if name == "--port":
                value = value or (words[at + 1] if at + 1 < len(words) else "")
                if value.isdigit():
                    owners[value].append(worker.name)
    return {port: tuple(found) for port, found in owners.items() if len(found) > 1}


CHECKS = (
    Check(THEME, "proxies", gather_proxies, judge_proxies),
    Check(THEME, "ports", gather_ports, judge_ports),
)
