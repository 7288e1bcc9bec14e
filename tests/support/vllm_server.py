"""A real vLLM on the CPU: its environment, its command line, its processes, its clients.

The environment is made by `tools/vllm_env.sh` and lies outside the tree. Everything here waits
for a condition with a limit; times are only limits, never expectations.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from support import processes
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
READY_LIMIT = 300.0  # a start takes 31 to 60 s on an idle machine
ANSWER_LIMIT = 300.0
MEGABYTE = 1 << 20

_numbers = itertools.count()

ENGINE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # The tests' own import path is not for the engine.
    "PYTHONPATH": "",
}


def home() -> Path:
    """Where the environment lies."""
    default = "~/.cache/stepwarden/vllm-0.32"
    return Path(os.environ.get("STEPWARDEN_VLLM_ENV") or default).expanduser()


def absent() -> str | None:
    """Why the real vLLM cannot be used here; None where it can."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "vllm_env.py"), "--check"], check=False
    )
    if done.returncode == 0:
        return None
    return f"no up-to-date vLLM in {home()}: make test-vllm makes it"


@dataclass(frozen=True)
class Serving:
    """How one vLLM is started."""

    model: str
    port: int
    max_model_len: int = 512
    max_num_seqs: int = 64
    cache_bytes: int = 1024 * MEGABYTE

    def command(self) -> list[str]:
        """The command line of `vllm serve`."""
        return [
            str(home() / "venv" / "bin" / "vllm"),
            *("serve", str(home() / "models" / self.model)),
            *("--served-model-name", self.model, "--load-format", "dummy"),
            *("--dtype", "float32", "--enforce-eager"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--max-model-len", str(self.max_model_len)),
            *("--max-num-seqs", str(self.max_num_seqs)),
            *("--kv-cache-memory-bytes", str(self.cache_bytes)),
        ]


class Client:
    """Asks one server; every call has a limit."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._pool = ThreadPoolExecutor(max_workers=128)

    def close(self) -> None:
        """Let go of the threads; calls that still run end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, path: str, limit: float = 5.0) -> tuple[int, bytes]:
        """Status and body of a GET; status 0 where nobody answers."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._ask("GET", path, None, limit)
        return 0, b""

    def ready(self) -> bool:
        """True while /health answers 200."""
        return self.get("/health")[0] == 200

    def complete(self, prompt: str, max_tokens: int, limit: float = ANSWER_LIMIT) -> int:
        """Ask for `max_tokens` tokens after `prompt`; returns how many came."""
        question = {
            "model": self._serving.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        status, body = self._ask("POST", "/v1/completions", json.dumps(question), limit)
        assert status == 200, f"{status}: {body[:300]!r}"
        return int(json.loads(body)["usage"]["completion_tokens"])

    def start(self, prompts: Sequence[str], max_tokens: int) -> list[Future[int]]:
        """Ask all of them at the same time."""
        return [self._pool.submit(self.complete, prompt, max_tokens) for prompt in prompts]

    def _ask(self, method: str, path: str, body: str | None, limit: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._serving.port, timeout=limit)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()


def prompts(count: int, tokens: int) -> list[str]:
    """Prompts of `tokens` tokens (a letter each); never one whose begin is in the cache."""
    return [f"{next(_numbers):08d}".ljust(tokens, "a") for _ in range(count)]


class Poller:
    """Asks /health and /metrics ten times a second, as a load balancer and Prometheus would."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.healthy = 0  # answers 200 of /health

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.healthy += self._client.get("/health", limit=2.0)[0] == 200
            self._client.get("/metrics", limit=2.0)


@dataclass(frozen=True)
class Tree:
    """The processes of one vLLM. psutil knows each by pid and start time."""

    api: psutil.Process
    core: psutil.Process
    worker: psutil.Process
    all: tuple[psutil.Process, ...]

    def left(self) -> list[psutil.Process]:
        """Those that live still."""
        return [process for process in self.all if processes.still_there(process)]


def tree(api_pid: int) -> Tree:
    """The tree below the API server; its members are known by the titles they give themselves."""
    api = psutil.Process(api_pid)
    below = processes.descendants(api_pid)
    return Tree(api, _titled(below, "EngineCore"), _titled(below, "Worker"), (api, *below))


def _titled(candidates: Sequence[psutil.Process], title: str) -> psutil.Process:
    for process in candidates:
        with contextlib.suppress(psutil.Error):
            if any(title in word for word in process.cmdline()):
                return process
    raise AssertionError(f"no {title} among {processes.describe(candidates)}")


@contextlib.contextmanager
def plain(serving: Serving, log: Path, **extra_env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A vLLM of its own without any supervisor, ready; nothing of it is left afterwards."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("STEPWARDEN_", "VLLM_"))}
    with log.open("wb") as output:
        server = subprocess.Popen(
            serving.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=base | ENGINE_ENV | extra_env,
            start_new_session=True,
        )
    client = Client(serving)
    seen: list[psutil.Process] = []
    try:
        wait_for(
            lambda: client.ready() or server.poll() is not None,
            READY_LIMIT,
            lambda: f"vLLM is not ready:\n{tail(log)}",
            every=0.1,
        )
        assert server.poll() is None, f"vLLM ended:\n{tail(log)}"
        seen += tree(server.pid).all
        yield server
    finally:
        client.close()
        if server.poll() is None:
            seen += [psutil.Process(server.pid), *processes.descendants(server.pid)]
        processes.end(seen)
        server.wait(30)


def tail(log: Path, lines: int = 40) -> str:
    """The end of a log file."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
