from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from stepwarden.clock import Clock, SystemClock
from stepwarden.edge import health_messages as health
from stepwarden.edge.http_get import parse_url
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.ready_probe import (
    CommandTarget,
    DelayTarget,
    GrpcTarget,
    HttpTarget,
    ProbeAnswer,
    ProbeRunner,
    ReadyProbe,
    Target,
    TcpTarget,
)
from stepwarden.edge.short_command import Ended, ShortSpec, short_runner
from support.clocks import FakeClock
from support.process_world import BASE_ENV, PATIENCE, run, text_of, until, world
from support.tiny_servers import answering, page, silent, tcp_server

CLOCK = SystemClock()
BRIEF = 0.3


async def no_command(_: ShortSpec) -> Ended:
    raise AssertionError("no command was asked for")


def probe(target: Target, timeout: float = PATIENCE, clock: Clock = CLOCK) -> ReadyProbe:
    return ReadyProbe(target, timeout, clock, no_command, clock.monotonic())


async def ask(target: Target, timeout: float = PATIENCE) -> ProbeAnswer:
    return await probe(target, timeout).ask()


async def free_port() -> int:
    async with tcp_server(silent) as port:
        return port


def test_tcp_takes_connections_or_says_why_not() -> None:
    async def story() -> None:
        async with tcp_server(silent) as port:
            answer = await ask(TcpTarget("127.0.0.1", port))
            assert answer == ProbeAnswer(True, f"tcp 127.0.0.1:{port} takes connections")
        answer = await ask(TcpTarget("127.0.0.1", port))
        assert answer == ProbeAnswer(False, f"tcp 127.0.0.1:{port}: Connection refused")
        answer = await ask(TcpTarget("a..b", port))
        assert answer == ProbeAnswer(False, f"tcp a..b:{port}: 'a..b' is no name of a host")

    run(story())


@pytest.mark.parametrize(
    ("status", "wanted", "ok", "text"),
    [
        ("200 OK", 200, True, "answers 200"),
        ("503 Loading model", 200, False, "answers 503, not 200"),
        ("301 Moved", 200, False, "answers 301, not 200"),
        ("401 Unauthorized", 401, True, "answers 401"),
    ],
)
def test_http_goes_by_the_status(status: str, wanted: int, ok: bool, text: str) -> None:
    async def story() -> None:
        async with tcp_server(answering(page(b"x", status))) as port:
            url = parse_url(f"http://127.0.0.1:{port}/health")
            answer = await ask(HttpTarget(url, wanted))
            assert answer == ProbeAnswer(ok, f"http 127.0.0.1:{port}/health {text}")

    run(story())


def test_http_knows_what_is_no_http_and_nobody_there() -> None:
    async def story() -> None:
        async with tcp_server(answering(b"hello\r\n")) as port:
            target = HttpTarget(parse_url(f"http://127.0.0.1:{port}/"))
            assert "is no HTTP answer ('hello')" in (await ask(target)).text
            tls = await ask(HttpTarget(parse_url(f"https://127.0.0.1:{port}/")), BRIEF)
            assert not tls.ok
        assert (await ask(target)).text.endswith(": Connection refused")

    run(story())


def test_https_is_asked_whatever_its_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            names = ("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert"))
            subject = ("-subj", "/CN=elsewhere", "-days", "1")
            argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *subject]
            made = await short_runner(here.launcher, here.reaper, CLOCK)(
                ShortSpec(LaunchSpec(argv, BASE_ENV), PATIENCE)
            )
            if not made.ok:
                pytest.skip(f"no certificate: {made.error}")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
            async with tcp_server(answering(page(b"ok")), tls=context) as port:
                answer = await ask(HttpTarget(parse_url(f"https://127.0.0.1:{port}/")))
                assert answer.ok, answer.text

    run(story())


def test_proxies_are_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "grpc_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{await free_port()}")
        async with tcp_server(answering(page(b"ok"))) as port:
            assert (await ask(HttpTarget(parse_url(f"http://127.0.0.1:{port}/")))).ok
        async with grpc_health({"": health.SERVING}) as port:
            assert (await ask(GrpcTarget(f"127.0.0.1:{port}"))).ok

    run(story())


@asynccontextmanager
async def grpc_health(statuses: dict[str, int]) -> AsyncIterator[int]:
    async def check(request: Any, context: Any) -> Any:
        if request.service not in statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health.HealthCheckResponse(status=statuses[request.service])

    handler = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=health.HealthCheckRequest.FromString,
        response_serializer=health.HealthCheckResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(health.SERVICE, {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0.0)


def test_grpc_asks_the_health_of_a_service() -> None:
    async def story() -> None:
        statuses = {"": health.SERVING, "llm": health.NOT_SERVING}
        async with grpc_health(statuses) as port:
            address = f"127.0.0.1:{port}"
            assert await ask(GrpcTarget(address)) == ProbeAnswer(True, f"grpc {address} is SERVING")
            assert await ask(GrpcTarget(f"localhost:{port}")) == ProbeAnswer(
                True, f"grpc localhost:{port} is SERVING"
            )
            answer = await ask(GrpcTarget(address, "llm"))
            assert answer == ProbeAnswer(False, f"grpc {address} 'llm' is NOT_SERVING")
            answer = await ask(GrpcTarget(address, "other"))
            assert answer.text == f"grpc {address} 'other': NOT_FOUND unknown service"
            statuses["llm"] = health.SERVING
            assert (await ask(GrpcTarget(address, "llm"))).ok
        answer = await ask(GrpcTarget(address))
        assert answer.text.startswith(f"grpc {address}: UNAVAILABLE")

    run(story())


def test_whoever_accepts_and_never_answers_costs_one_try_and_no_thread() -> None:
    async def story() -> None:
        connections = 0

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await silent(reader, writer)
            connections -= 1

        async with tcp_server(count) as port:
            url = parse_url(f"http://127.0.0.1:{port}/")
            await ask(HttpTarget(url), 0.1)
            threads = threading.active_count()
            for _ in range(5):
                answer = await ask(HttpTarget(url), 0.1)
                assert answer == ProbeAnswer(False, f"http 127.0.0.1:{port}/: no answer in time")
            assert threading.active_count() <= threads
            answer = await ask(GrpcTarget(f"127.0.0.1:{port}"), BRIEF)
            assert not answer.ok
            await until(lambda: connections == 0)

    run(story())


def test_a_command_is_ready_when_it_exits_with_zero(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            argv = ["/bin/sh", "-c", "test -e $0 || { echo still loading; exit 1; }"]
            target = CommandTarget(LaunchSpec([*argv, str(tmp_path / "up")], BASE_ENV))
            commands = short_runner(here.launcher, here.reaper, CLOCK)
            asked = ReadyProbe(target, PATIENCE, CLOCK, commands, 0.0)
            answer = await asked.ask()
            assert not answer.ok
            assert answer.text.startswith("ready command ended with exit code 1 after ")
            assert answer.text.endswith("it said last: still loading")
            (tmp_path / "up").touch()
            assert (await asked.ask()).ok

    run(story())


def test_a_delay_counts_from_the_start_of_the_life() -> None:
    async def story() -> None:
        clock = FakeClock()
        waiting = ReadyProbe(DelayTarget(5.0), 2.0, clock, no_command, clock.now - 4.95)
        asking = asyncio.ensure_future(waiting.ask())
        await asyncio.sleep(0.1)
        assert not asking.done()
        clock.advance(0.06)
        answer = await asking
        assert answer.ok
        assert "5.01 s have passed" in answer.text

    run(story())


def test_the_runner_asks_until_the_first_yes() -> None:
    async def story() -> None:
        told: list[float] = []
        port = await free_port()
        runner = ProbeRunner(
            probe(TcpTarget("127.0.0.1", port)), 0.05, CLOCK, lambda: told.append(1.0)
        )
        assert runner.last_text == "not answered yet"
        runner.start()
        await until(lambda: "refused" in runner.last_text)
        assert (runner.ok_at, told) == (None, [])
        async with tcp_server(silent, port):
            await until(lambda: runner.ok_at is not None)
        assert told == [1.0]
        await runner.close()
        assert runner.last_text.endswith("takes connections")

    run(story())


def test_closed_it_leaves_no_command_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            argv = ["/bin/sh", "-c", "echo $$ > $0; exec sleep 600", str(tmp_path / "pid")]
            commands = short_runner(here.launcher, here.reaper, CLOCK)
            target = CommandTarget(LaunchSpec(argv, BASE_ENV))
            runner = ProbeRunner(ReadyProbe(target, 900.0, CLOCK, commands, 0.0), 0.05, CLOCK)
            runner.start()
            pid = int(await text_of(tmp_path / "pid"))
            await runner.close()
            await until(lambda: not os.path.exists(f"/proc/{pid}"))

    run(story())


def test_turns_never_overlap_and_a_fault_of_ours_is_told() -> None:
    async def story() -> None:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: seen.append(context["message"]))
        at_once = most = turns = 0

        async def turn() -> bool:
            nonlocal at_once, most, turns
            turns += 1
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1
            if turns == 2:
                raise ValueError("a bug")
            return turns < 4

        again = Periodic(turn, 0.001, CLOCK)
        again.start()
        again.start()
        await until(lambda: not again.running)
        assert (turns, most, seen) == (4, 1, ["a periodic look failed"])
        await again.close()

    run(story())
