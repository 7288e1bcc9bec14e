"""The steps of one vLLM worker: where one begins, and which of three places ends it.

A step begins with `execute_model`. It ends when that returns an output; or, where it returned
None, when `sample_tokens` returns; and where the output is an asynchronous one, when its
`get_output` returns, which happens on another thread and after the next step has begun.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from stepwarden_agent import Agent
from stepwarden_agent.integrations import vllm_hooks as hooks
from stepwarden_agent.integrations.vllm_hooks import Function, log

_END = "_stepwarden_end"


class StepReporter:
    """Reports the steps of one worker to its agent.

    `answers` tells whether this rank's outputs are read at all. `before_step` is called before
    each step, for engines that skip the last method of the start.
    """

    def __init__(self, agent: Agent, answers: bool, before_step: Callable[[], None]) -> None:
        self._agent = agent
        self._answers = answers
        self._before_step = before_step
        self._unsampled = 0
        self._pauses = 0
        self._complained = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Report no steps inside: the startup budget stands guard there."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def execute_model(self, original: Function) -> Function:
        """Makes the wrapper in which a step begins."""

        def execute_model(*args: Any, **kwargs: Any) -> Any:
            handle = self._begin(args, kwargs)
            try:
                output = original(*args, **kwargs)
            except BaseException:
                self._agent.end(handle)
                raise
            if output is None:
                self._unsampled = handle
            else:
                self._finish(handle, output)
            return output

        return execute_model

    def sample_tokens(self, original: Function) -> Function:
        """Makes the wrapper that ends the step which `execute_model` left open."""

        def sample_tokens(*args: Any, **kwargs: Any) -> Any:
            handle, self._unsampled = self._unsampled, 0
            try:
                output = original(*args, **kwargs)
            except BaseException:
                self._agent.end(handle)
                raise
            self._finish(handle, output)
            return output

        return sample_tokens

    def _begin(self, args: Any, kwargs: Any) -> int:
        """The new step's handle; 0 where there is nothing to report."""
        try:
            if self._unsampled:  # its sampling never came: the next step has overtaken it
                self._agent.end(self._unsampled)
                self._unsampled = 0
            shape = None if self._pauses else step_shape(_scheduled(args, kwargs))
            if shape is None:
                return 0
            self._before_step()
            return self._agent.begin(*shape)
        except Exception as error:
            self._complain(error)
            return 0

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.warning("stepwarden: steps are not reported: %r", error)

    def _finish(self, handle: int, output: Any) -> None:
        if not handle:
            return
        if not (self._answers and _is_asynchronous(output) and self._end_when_read(handle, output)):
            self._agent.end(handle)

    def _end_when_read(self, handle: int, output: Any) -> bool:
        """True when the step will end with `get_output`, or when the output is dropped unread."""
        try:
            _watch_reads(type(output))
            end = weakref.finalize(output, self._agent.end, handle)
            end.atexit = False
            setattr(output, _END, end)
        except Exception:  # an output that takes neither attribute nor weak reference
            return False
        return True


def step_shape(scheduled: Any) -> tuple[int, int, str] | None:
    """(sequences, tokens, phase) of what the scheduler gave out; None where that is nothing."""
    tokens = int(scheduled.total_num_scheduled_tokens)
    if tokens <= 0:
        return None
    phase = "prefill" if _has_prefill(scheduled) else "decode"
    return len(scheduled.num_scheduled_tokens), tokens, phase


def _has_prefill(scheduled: Any) -> bool:
    """New requests, chunks of a prompt, and preempted requests that compute theirs again."""
    if scheduled.scheduled_new_reqs:
        return True
    cached = scheduled.scheduled_cached_reqs
    return 0 in cached.num_output_tokens or bool(getattr(cached, "resumed_req_ids", None))


def _scheduled(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs[hooks.EXECUTE.parameters[1]]


def _is_asynchronous(output: Any) -> bool:
    return callable(getattr(type(output), "get_output", None))


def _watch_reads(kind: type) -> None:
    """Make `get_output` of this class end the step of the object it is called on."""

    def make(original: Function) -> Function:
        def get_output(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(self, *args, **kwargs)
            finally:
                end = getattr(self, _END, None)
                if end is not None:
                    end()

        return get_output

    hooks.wrap_instance(kind, "get_output", make)
