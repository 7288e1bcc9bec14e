"""The demo's inference server: `python -m stepwarden.demo.worker`.

It loads a model, warms up, then serves the traffic that its control socket asks for. Like real
engines it brings a watchdog of its own: one fixed timeout for every step.

Control requests: {"do": "load", "batch": N}, {"do": "slow", "seconds": S}, {"do": "freeze"},
{"do": "stats"}.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepwarden_agent import Agent

from stepwarden.clock import SystemClock
from stepwarden.demo import control
from stepwarden.demo.watchdog import EngineWatchdog

if TYPE_CHECKING:
    from stepwarden.demo.engine import Engine
    from stepwarden.demo.traffic import Traffic

EXIT_ENGINE_DEAD = 70
MEASURED_BATCH, MEASURED_PROMPT_TOKENS = 16, 64
IDLE_WAIT_SECONDS = 0.2
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def build_parser() -> argparse.ArgumentParser:
    """The command line of the server."""
    parser = argparse.ArgumentParser(prog="python -m stepwarden.demo.worker", description=__doc__)
    parser.add_argument("--control", type=Path, help="unix socket for control requests")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--batch", type=int, default=0, help="requests in flight from the start")
    parser.add_argument("--engine-timeout", type=float, help="seconds of the engine's own watchdog")
    parser.add_argument(
        "--on-engine-timeout",
        choices=("die", "report"),
        default="die",
        help="what that watchdog does; report: only say that it would have died",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; returns the exit code."""
    options = build_parser().parse_args(argv)
    agent = Agent.from_env(rank="0", phase="loading")
    server = Server(options, agent)
    signal.signal(signal.SIGTERM, server.on_terminate)
    try:
        server.load()
        server.serve()
    except SystemExit:
        agent.phase("draining")
    server.stop()
    agent.close()
    return 0


class Server:
    """The parts of the server and their two threads: this one answers, the other one steps."""

    def __init__(self, options: argparse.Namespace, agent: Agent) -> None:
        self._options = options
        self._agent = agent
        self._watchdog: EngineWatchdog | None = None
        self._stopping = threading.Event()
        self._stepper = threading.Thread(target=self._step_until_stopped, name="engine")
        self.engine: Engine
        self.traffic: Traffic

    def on_terminate(self, *_: object) -> None:
        """SIGTERM: leave what the main thread does now, and drain."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit

    def load(self) -> None:
        """Make the model and take the machine's measure; the agent is told of each phase."""
        cap_threads()
        from stepwarden.demo.engine import Engine
        from stepwarden.demo.model import Model, Shape
        from stepwarden.demo.traffic import Traffic

        options, clock = self._options, SystemClock()
        shape = Shape()
        model = Model(shape, options.seed)
        self.engine = Engine(model, self._agent, options.max_num_seqs, clock)
        self.traffic = Traffic(self.engine, shape.vocabulary, shape.context, options.seed)
        self._agent.phase("warmup")
        self._warm_up()
        if options.engine_timeout is not None:
            self._watchdog = EngineWatchdog(options.engine_timeout, self._on_timeout, clock)
            self.engine.watchdog = self._watchdog
        self.traffic.load(options.batch)
        self._agent.phase("idle")

    def serve(self) -> None:
        """Step in a thread and answer control requests here, until SIGTERM."""
        listener = None if self._options.control is None else control.listen(self._options.control)
        self._stepper.start()
        say(f"serving, up to {self.engine.max_num_seqs} sequences")
        if listener is None:
            signal.pause()
            return
        with listener:
            control.serve(listener, self._answer)

    def stop(self) -> None:
        """Let the running step end. A frozen one never does: then only SIGKILL helps."""
        self._stopping.set()
        if self._stepper.is_alive():
            self._stepper.join()

    def _warm_up(self) -> None:
        # All slots first, which touches fresh memory; then fewer and longer prompts, which say
        # how fast this machine is without that.
        slots = self.engine.max_num_seqs
        for batch, length in ((slots, 8), (min(slots, MEASURED_BATCH), MEASURED_PROMPT_TOKENS)):
            self.engine.submit_all([[1] * length] * batch, new_tokens=2)
            while self.engine.step():
                pass

    def _step_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self.traffic.keep()
            if not self.engine.step():
                self.engine.wait_for_work(IDLE_WAIT_SECONDS)

    def _answer(self, request: control.Message) -> control.Message:
        what = request.get("do")
        if what == "load":
            self.traffic.load(int(_number(request, "batch")))
        elif what == "slow":
            seconds = _number(request, "seconds")
            return {"prompt_tokens": self.traffic.slow_step(seconds)}
        elif what == "freeze":
            self.engine.freeze()
        elif what != "stats":
            raise ValueError(f"do must be load, slow, freeze or stats, not {what!r}")
        return self._stats()

    def _stats(self) -> control.Message:
        counts = self.engine.counts
        return {
            "pid": os.getpid(),
            "in_flight": self.engine.in_flight,
            "steps": counts.steps,
            "tokens": counts.tokens,
            "finished": counts.finished,
            "last_step_seconds": counts.last_step_seconds,
            "longest_step_seconds": counts.longest_step_seconds,
            "slow_step_over": self.traffic.slow_step_over(),
            "engine_timeout": self._options.engine_timeout,
            "engine_timeouts": self._watchdog.fired if self._watchdog else 0,
        }

    def _on_timeout(self, seconds: float) -> None:
        text = f"EngineDeadError: execute_model timed out after {seconds:g} s"
        if self._options.on_engine_timeout == "report":
            say(f"{text} - left to stepwarden, or this process would have ended here")
            return
        say(text)
        os._exit(EXIT_ENGINE_DEAD)


def cap_threads() -> None:
    """One thread for the matrix products, unless the operator says otherwise.

    Idle BLAS threads spin, which would look like work while a step hangs; and two cores may be all
    there is. Must come before numpy is imported.
    """
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")


def say(text: str) -> None:
    """One line for the log."""
    print(f"demo worker {os.getpid()}: {text}", flush=True)


def _number(request: control.Message, key: str) -> float:
    value = request.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} must be a number, not {value!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
