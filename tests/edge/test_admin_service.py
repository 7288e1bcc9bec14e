from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from stepwarden.clock import SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.edge import event_hub
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.health_messages import HealthCheckRequest, HealthCheckResponse
from stepwarden.edge.health_table import HealthSnapshot, HealthTable
from stepwarden.edge.listen import UnixTarget
from stepwarden.edge.operator_commands import CommandWait, LastCommands, outcome, settled
from stepwarden.edge.views import EventFilter, RankView, WorkerView
from stepwarden.errors import ActionFailedError
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.v1 import supervisor_pb2 as pb
from stepwarden_proto.v1 import supervisor_pb2_grpc as rpc
from support.backend import Backend

LIMIT = 20.0


def with_admin(tmp_path: Path, story: Callable[[Backend, Any, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = SystemClock()
        table = HealthTable(clock)
        table.publish(HealthSnapshot(clock.monotonic(), {"ready": True}))
        backend = Backend()
        server = AdminServer(UnixTarget(tmp_path / "admin.sock"), backend, clock, table)
        backend.publish = server.publish
        await server.start()
        address = f"unix:{tmp_path / 'admin.sock'}"
        try:
            async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
                make: Any = rpc.SupervisorServiceStub
                await asyncio.wait_for(story(backend, make(channel), channel), 60.0)
        finally:
            await server.stop()

    asyncio.run(main())


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def _read_all(call: Any) -> None:
    while True:
        await call.read()


def test_list_and_get_show_everything_and_unknown_stays_unknown(tmp_path: Path) -> None:
    async def story(_backend: Backend, stub: Any, _channel: Any) -> None:
        answer = await stub.ListWorkers(pb.ListWorkersRequest(), timeout=LIMIT)
        assert [w.name for w in answer.workers] == ["gemma-cpu", "llama-gpu"]
        assert answer.loop_age_seconds == pytest.approx(0.25)
        assert answer.version
        worker = (await stub.GetWorker(pb.GetWorkerRequest(name="gemma-cpu"))).worker
        assert (worker.state, worker.pid, worker.restarts_used) == ("HEALTHY", 4242, 1)
        busy, idle = worker.ranks
        assert (busy.step, busy.num_seqs, busy.budget_left_seconds) == (17, 64, 30.5)
        assert (idle.step, idle.num_seqs) == (0, -1)
        assert not idle.HasField("step_age_seconds")
        assert not idle.HasField("cpu_percent")
        assert not worker.HasField("restart_in_seconds")

    with_admin(tmp_path, story)


def test_what_cannot_be_encoded_of_one_worker_does_not_hide_the_others(tmp_path: Path) -> None:
    async def story(backend: Backend, admin: Any, _: Any) -> None:
        healthy = {view.name: view for view in backend.workers()}
        first, *others = healthy
        odd = replace(healthy[first], ranks=(RankView("0", steps_ended=-15),))
        backend.views[first] = odd
        answer = await admin.ListWorkers(pb.ListWorkersRequest(), timeout=LIMIT)
        shown = {worker.name: worker for worker in answer.workers}
        assert "cannot be shown" in shown[first].sentence
        assert shown[first].state == odd.state
        assert [shown[name].sentence for name in others] == [
            healthy[name].sentence for name in others
        ]

    with_admin(tmp_path, story)


def test_unknown_workers_are_not_found_with_a_suggestion(tmp_path: Path) -> None:
    async def story(_backend: Backend, stub: Any, _channel: Any) -> None:
        code, text = await status_of(stub.GetWorker(pb.GetWorkerRequest(name="gema-cpu")))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "did you mean gemma-cpu?" in text
        code, text = await status_of(stub.StopWorker(pb.WorkerCommandRequest(name="x" * 10_000)))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "there are: gemma-cpu, llama-gpu" in text
        assert len(text) < 300
        call = stub.WatchEvents(pb.WatchEventsRequest(worker="nobody"), timeout=LIMIT)
        assert await call.code() is grpc.StatusCode.NOT_FOUND

    with_admin(tmp_path, story)


def test_past_events_then_new_ones_without_a_gap_or_a_double(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        for n in range(5):
            backend.record(f"past {n}", "gemma-cpu")
        backend.record("another's", "llama-gpu")
        request = pb.WatchEventsRequest(follow=True, worker="gemma-cpu", limit=3)
        call = stub.WatchEvents(request, timeout=LIMIT)
        found = [(await call.read()).sentence for _ in range(3)]
        backend.record("another's", "llama-gpu")
        backend.record("new", "gemma-cpu")
        event = await call.read()
        assert [*found, event.sentence] == ["past 2", "past 3", "past 4", "new"]
        assert json.loads(event.data_json) == {"budget": 42.8}
        assert event.kind == "transition"
        call.cancel()

    with_admin(tmp_path, story)


def test_without_follow_the_stream_ends(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        backend.record("past", "gemma-cpu")
        call = stub.WatchEvents(pb.WatchEventsRequest(), timeout=LIMIT)
        assert [event.sentence async for event in call] == ["past"]

    with_admin(tmp_path, story)


def test_a_follower_that_does_not_read_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_hub, "QUEUE_EVENTS", 10)

    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        backend.record("first", "gemma-cpu")
        call = stub.WatchEvents(pb.WatchEventsRequest(follow=True), timeout=LIMIT)
        await call.read()
        for n in range(200):
            backend.record(f"{n} " + "x" * 100_000, "gemma-cpu")
        code, _ = await status_of(_read_all(call))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    with_admin(tmp_path, story)


def test_commands_answer_when_they_have_come_about(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        ask = pb.WorkerCommandRequest(name="gemma-cpu", wait_seconds=LIMIT)
        answer = await stub.StopWorker(ask, timeout=LIMIT)
        assert (answer.state, backend.commands) == ("STOPPED", [("stop", "gemma-cpu")])
        assert backend.kept_so_far == 1, "it is on disk before it is answered"
        assert (await stub.StartWorker(ask, timeout=LIMIT)).state == "STARTING"
        before = backend.worker("gemma-cpu")
        answer = await stub.RestartWorker(ask, timeout=LIMIT)
        after = backend.worker("gemma-cpu")
        assert answer.state == "STARTING"
        assert before is not None
        assert after is not None
        assert before.incarnation != after.incarnation

    with_admin(tmp_path, story)


def test_a_command_that_takes_longer_says_so(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        backend.stuck = True
        ask = pb.WorkerCommandRequest(name="gemma-cpu", wait_seconds=0.1)
        code, text = await status_of(stub.StopWorker(ask, timeout=LIMIT))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "the stop goes on" in text
        ask = pb.WorkerCommandRequest(name="gemma-cpu", wait_seconds=float("nan"))
        code, text = await status_of(stub.StopWorker(ask, timeout=LIMIT))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert text == "after 0 s gemma-cpu is STOPPING; the stop goes on"
        ask = pb.WorkerCommandRequest(name="gemma-cpu")
        answer = await stub.StopWorker(ask, timeout=LIMIT)
        assert answer.state == "STOPPING"
        assert answer.sentence == "gemma-cpu is STOPPING; the stop goes on"

    with_admin(tmp_path, story)


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [("stop", "start", ""), ("stop", "restart", ""), ("restart", "stop", "stop")],
)
def test_a_command_that_another_operator_overtakes_says_so_at_once(
    first: str, second: str, third: str, tmp_path: Path
) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        calls = {"stop": stub.StopWorker, "start": stub.StartWorker, "restart": stub.RestartWorker}
        backend.stuck = True
        waits = pb.WorkerCommandRequest(name="gemma-cpu", wait_seconds=600.0)
        at_once = pb.WorkerCommandRequest(name="gemma-cpu")
        waiting = calls[first](waits, timeout=LIMIT)
        same = calls[first](waits, timeout=LIMIT)
        while len(backend.commands) < 2:
            await asyncio.sleep(0.01)
        await calls[second](at_once, timeout=LIMIT)
        text = f"the {first} of gemma-cpu was overtaken by a later {second}; it is STOPPING"
        for call in (waiting, same):
            assert await status_of(call) == (grpc.StatusCode.FAILED_PRECONDITION, text)
        # Who says the same again is waited for, not overtaken.
        backend.stuck = False
        if third:
            assert (await calls[third](waits, timeout=LIMIT)).state == "STOPPED"

    with_admin(tmp_path, story)


def test_a_stop_that_came_about_before_the_next_start_is_done() -> None:
    """Both are in the queue when the waiting stop looks: the order of the events tells."""

    async def story() -> None:
        last, told = LastCommands(), event_hub.Subscription(EventFilter("gemma-cpu"))
        backend, clock = Backend(), SystemClock()
        backend.publish = told.offer
        waiting = CommandWait("stop", backend.views["gemma-cpu"], last)
        last.took("gemma-cpu", "stop")
        assert not waiting.done(backend.worker("gemma-cpu"), told)
        backend._set("gemma-cpu", "STOPPED")
        last.took("gemma-cpu", "start")
        backend._set("gemma-cpu", "STARTING")
        assert not waiting.done(backend.worker("gemma-cpu"), told)
        deadline = Deadline.after(clock.monotonic(), LIMIT)
        assert await waiting.next(told, deadline, clock)

    asyncio.run(story())


def test_a_stop_is_overtaken_by_a_new_life_whoever_wanted_it() -> None:
    last, told = LastCommands(), event_hub.Subscription(EventFilter("w"))
    waiting = CommandWait("stop", view("HEALTHY", "1"), last)
    assert not waiting.done(view("STOPPING", "1"), told)
    with pytest.raises(ActionFailedError, match="overtaken by a new life; it is STARTING"):
        waiting.done(view("STARTING", "2"), told)


def test_a_command_that_cannot_be_done_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        backend.refusal = "its last process 77 cannot be ended"
        ask = pb.WorkerCommandRequest(name="gemma-cpu", wait_seconds=1.0)
        code, text = await status_of(stub.StartWorker(ask, timeout=LIMIT))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert text == "its last process 77 cannot be ended"

    with_admin(tmp_path, story)


def test_explain(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        ask = pb.ExplainRequest(worker="gemma-cpu", num_seqs=16, num_tokens=-1)
        answer = await stub.Explain(ask, timeout=LIMIT)
        assert (answer.budget_seconds, answer.hard_cap_seconds) == (316.0, 1264.0)
        assert backend.explained == [("gemma-cpu", 16, None, "")]

    with_admin(tmp_path, story)


def test_o_grpc_5_two_thousand_workers_with_long_sentences_are_listed(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        backend.views = {
            f"w{n}": WorkerView(f"w{n}", "FAILED", sentence="x" * 4096) for n in range(2000)
        }
        names: list[str] = []
        token = ""
        while token or not names:
            ask = pb.ListWorkersRequest(page_token=token)
            answer = await stub.ListWorkers(ask, timeout=LIMIT)
            assert answer.ByteSize() < 2 * 1024 * 1024
            assert answer.total == 2000
            assert answer.version
            names += [worker.name for worker in answer.workers]
            token = answer.next_page_token
        assert names == list(backend.views)
        one = await stub.GetWorker(pb.GetWorkerRequest(name="w5"), timeout=LIMIT)
        assert len(one.worker.sentence) == 4096

    with_admin(tmp_path, story)


def test_a_page_has_the_size_that_was_asked_for(tmp_path: Path) -> None:
    async def story(_backend: Backend, stub: Any, _channel: Any) -> None:
        first = await stub.ListWorkers(pb.ListWorkersRequest(page_size=1), timeout=LIMIT)
        assert [worker.name for worker in first.workers] == ["gemma-cpu"]
        assert first.next_page_token
        ask = pb.ListWorkersRequest(page_size=1, page_token=first.next_page_token)
        second = await stub.ListWorkers(ask, timeout=LIMIT)
        assert [worker.name for worker in second.workers] == ["llama-gpu"]
        assert not second.next_page_token
        code, text = await status_of(
            stub.ListWorkers(pb.ListWorkersRequest(page_token="gone"), timeout=LIMIT)
        )
        assert code is grpc.StatusCode.ABORTED
        assert "begin again" in text

    with_admin(tmp_path, story)


def test_o_grpc_5_a_worker_of_a_thousand_talkative_ranks_fits_an_answer(tmp_path: Path) -> None:
    async def story(backend: Backend, stub: Any, _channel: Any) -> None:
        ranks = tuple(RankView(f"r{n}", detail="x" * 4096) for n in range(1024))
        backend.views = {"w": WorkerView("w", "HEALTHY", ranks=ranks), "v": WorkerView("v", "DEAD")}
        one = await stub.GetWorker(pb.GetWorkerRequest(name="w"), timeout=LIMIT)
        assert len(one.worker.ranks) == 1024
        assert one.ByteSize() < 1024 * 1024
        answer = await stub.ListWorkers(pb.ListWorkersRequest(), timeout=LIMIT)
        assert len(answer.workers) == 2

    with_admin(tmp_path, story)


def test_reflection_lists_and_describes_our_services(tmp_path: Path) -> None:
    async def story(_backend: Backend, _stub: Any, channel: Any) -> None:
        make: Any = reflection_pb2_grpc.ServerReflectionStub
        call = make(channel).ServerReflectionInfo(timeout=LIMIT)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {s.name for s in (await call.read()).list_services_response.service}
        assert {"stepwarden.v1.SupervisorService", "grpc.health.v1.Health"} <= names
        for name in sorted(names):
            ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)
            await call.write(ask)
            (raw,) = (await call.read()).file_descriptor_response.file_descriptor_proto
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            assert name in {f"{file.package}.{service.name}" for service in file.service}
        ask = reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.such.Thing")
        await call.write(ask)
        assert (await call.read()).error_response.error_code
        await call.done_writing()

    with_admin(tmp_path, story)


def test_health_is_answered_here_too(tmp_path: Path) -> None:
    async def story(_backend: Backend, _stub: Any, channel: Any) -> None:
        kinds: Any = (HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString)
        check = channel.unary_unary("/grpc.health.v1.Health/Check", *kinds)
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", *kinds)
        assert (await check(HealthCheckRequest(service="ready"), timeout=LIMIT)).status == 1
        code, _ = await status_of(check(HealthCheckRequest(service="W9"), timeout=LIMIT))
        assert code is grpc.StatusCode.NOT_FOUND
        stream = watch(HealthCheckRequest(service="W9"), timeout=LIMIT)
        assert (await stream.read()).status == 3
        stream.cancel()

    with_admin(tmp_path, story)


def test_stop_lets_followers_go(tmp_path: Path) -> None:
    async def main() -> None:
        backend = Backend()
        server = AdminServer(UnixTarget(tmp_path / "a.sock"), backend, SystemClock())
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{tmp_path / 'a.sock'}") as channel:
            make: Any = rpc.SupervisorServiceStub
            call = make(channel).WatchEvents(pb.WatchEventsRequest(follow=True), timeout=LIMIT)
            backend.publish = server.publish
            reading = asyncio.ensure_future(call.read())
            while not server._service.hub:
                await asyncio.sleep(0.01)
            await server.stop()
            await asyncio.wait_for(asyncio.wait([reading]), LIMIT)
            assert await call.code() is grpc.StatusCode.OK
        assert not (tmp_path / "a.sock").exists()

    asyncio.run(main())


def view(state: str, incarnation: str = "1") -> WorkerView:
    return WorkerView("w", state, incarnation=incarnation)


@pytest.mark.parametrize(
    ("action", "before", "now", "done"),
    [
        ("stop", view("HEALTHY"), view("STOPPING"), False),
        ("stop", view("HEALTHY"), view("STOPPED"), True),
        ("stop", view("HEALTHY"), view("FAILED"), True),
        ("start", view("STOPPED"), view("STOPPED"), False),
        ("start", view("STOPPED"), view("STARTING", "2"), True),
        ("start", view("HEALTHY"), view("HEALTHY"), True),
        ("start", view("DEAD"), view("DEAD"), False),
        ("start", view("DEAD"), view("RESTARTING"), False),
        ("start", view("FAILED"), view("FAILED", "2"), True),
        ("restart", view("HEALTHY"), view("HEALTHY"), False),
        ("restart", view("HEALTHY"), view("RESTARTING", "2"), False),
        ("restart", view("HEALTHY"), view("STOPPING"), False),
        ("restart", view("HEALTHY"), view("STARTING", "2"), True),
        ("restart", view("HEALTHY"), view("FAILED"), True),
        ("restart", view("FAILED"), view("FAILED"), False),
        ("restart", view("HEALTHY"), None, True),
    ],
)
def test_when_a_command_has_come_about(
    action: str, before: WorkerView, now: WorkerView | None, done: bool
) -> None:
    assert settled(action, before, now) is done


@pytest.mark.parametrize(
    ("action", "before", "now", "sentence"),
    [
        ("stop", view("HEALTHY"), view("STOPPED"), "w: HEALTHY -> STOPPED"),
        ("stop", view("HEALTHY"), view("STOPPING"), "w: HEALTHY -> STOPPING"),
        ("stop", view("STOPPED"), view("STOPPED"), "w is STOPPED already"),
        ("stop", view("STOPPING"), view("STOPPING"), "w is STOPPING; the stop goes on"),
        ("start", view("HEALTHY"), view("HEALTHY"), "w is HEALTHY already"),
        ("start", view("FAILED"), view("STARTING", "2"), "w: FAILED -> STARTING"),
        ("restart", view("HEALTHY"), view("HEALTHY", "2"), "w is HEALTHY in a new incarnation"),
        ("restart", view("HEALTHY"), view("STARTING", "2"), "w: HEALTHY -> STARTING"),
    ],
)
def test_what_came_of_a_command_is_one_fact(
    action: str, before: WorkerView, now: WorkerView, sentence: str
) -> None:
    assert outcome(action, before, now) == sentence


def test_kinds_travel_by_name() -> None:
    assert str(Kind.FALSE_ALARM) == "false_alarm"
