"""A real vLLM under a real daemon: one worker named `vllm`, asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stepwarden_proto.v1 import supervisor_pb2

from support import processes, vllm_server
from support.daemon import Daemon
from support.vllm_server import Client, Serving, Tree
from support.waiting import wait_for

WORKER = "vllm"
RANK = "rank0"
CORE = "core"
WINDOW = 8.0


@dataclass(frozen=True)
class Supervised:
    """The daemon, its vLLM and a client of it."""

    daemon: Daemon
    client: Client

    def wait_healthy(self, after: int = 0) -> Tree:
        """The tree of the worker, once it is HEALTHY (again, after that event) and answers."""
        self.daemon.wait_transition(WORKER, "HEALTHY", after=after, limit=vllm_server.READY_LIMIT)
        status = self.status()
        # The engine is up a moment before its HTTP server listens.
        wait_for(self.client.ready, 60.0, self.daemon.log_tail, every=0.1)
        # The second question of a process is the first one whose steps have the usual budget.
        assert self.client.complete("hello", 3) == 3
        return vllm_server.tree(status.pid)

    def status(self) -> supervisor_pb2.Worker:
        """What the daemon says about the worker now."""
        return self.daemon.status()[WORKER]

    def ranks(self) -> dict[str, int]:
        """Pid of each attached rank."""
        return {rank.name: rank.pid for rank in self.status().ranks}

    def last_event(self) -> int:
        """Id of the newest event."""
        return max((event.id for event in self.daemon.events()), default=0)

    def since(self, event_id: int) -> list[supervisor_pb2.Event]:
        """The worker's events after that one."""
        return [event for event in self.daemon.events(WORKER) if event.id > event_id]

    def wait_long_step(self) -> None:
        """Wait until the rank computes a long prompt."""
        self.daemon.wait_status(
            WORKER,
            lambda seen: any(r.name == RANK and r.num_tokens > 1000 for r in seen.ranks),
            "in a long step",
            limit=60.0,
        )

    def assert_gone(self, tree: Tree) -> None:
        """Not one process of that tree lives: checked by pid and start time."""
        assert not tree.left(), f"left: {processes.describe(tree.left())}"


@contextmanager
def supervised(serving: Serving, backend: str | None = None) -> Iterator[Supervised]:
    """`backend`: what `backends: cpu:` says, in one line of YAML; None: the shipped policy."""
    with Daemon(config(serving, backend)) as daemon:
        client = Client(serving)
        try:
            yield Supervised(daemon, client)
        finally:
            client.close()


def config(serving: Serving, backend: str | None) -> str:
    """The operator's file, without its `supervisor:` section."""
    backends = "" if backend is None else f"backends:\n  cpu: {backend}\n"
    return f"""
{backends}
defaults:
  startup: {{budget: 5m}}
  retry: {{window: {WINDOW:g}s, busy_cpu: 5}}
  restart: {{on: any_exit, delay: 500ms, jitter: 0, limit: 20, within: 2h, stable: 1h}}
  stop: {{grace: 10s}}

workers:
  {WORKER}:
    backend: cpu
    engine: vllm
    agent: required
    max_num_seqs: {serving.max_num_seqs}
    command: {json.dumps(serving.command())}
    env: {json.dumps(vllm_server.ENGINE_ENV)}
"""
