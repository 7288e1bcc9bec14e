from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.clock import SystemClock
from stepwarden.core.progress_seen import ProgressSeen
from stepwarden.edge.http_get import parse_url
from stepwarden.edge.progress_counter import (
    MOST_BYTES,
    ProgressCounter,
    ProgressRunner,
    ProgressTarget,
)
from stepwarden.edge.prometheus_text import sums
from support.process_world import run, until
from support.tiny_servers import answering, page, silent, tcp_server

CLOCK = SystemClock()
TOKENS = "vllm:generation_tokens_total"
STEPS = "vllm:iteration_tokens_total_count"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
# As a real engine writes it, with two data parallel engines.
PAGE = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="mid"} 3.0
vllm:num_requests_running{engine="1",model_name="mid"} 1.0
vllm:num_requests_waiting{engine="0",model_name="mid"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="mid",reason="capacity"} 77.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="mid"} 1.200345e+06
vllm:generation_tokens_total{engine="1",model_name="mid"} 55.0
vllm:generation_tokens_created{engine="0",model_name="mid"} 1.7e+09
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="mid"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="mid"} 10.0
vllm:iteration_tokens_total_sum{engine="0",model_name="mid"} 400.0
"""


def counter(port: int, timeout: float = 30.0) -> ProgressCounter:
    url = parse_url(f"http://127.0.0.1:{port}/metrics")
    target = ProgressTarget(url, (TOKENS, STEPS), (RUNNING, WAITING))
    return ProgressCounter(target, CLOCK, timeout)


def test_sums_go_over_all_label_sets_and_take_whole_names() -> None:
    assert sums(PAGE, [TOKENS, STEPS, RUNNING, WAITING, "vllm:iteration_tokens"]) == {
        TOKENS: 1_200_400.0,
        STEPS: 10.0,
        RUNNING: 4.0,
        WAITING: 0.0,
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"x 5", 5.0),
        (b"x{} 5", 5.0),
        (b"x\t5", 5.0),
        (b'x {a="1"} 5', 5.0),
        (b'x{a="}",b="\\"} 9",c=" # "} 5 1712345678000', 5.0),
        (b'x{a="\\\\"}5', 5.0),
        (b'x{a="1",} 5 # {trace_id="abc"} 0.5', 5.0),
        ('x{a="ü"} 5'.encode(), 5.0),
        (b"x 5\r", 5.0),
        (b"x NaN", None),
        (b"x +Inf", None),
        (b"x five", None),
        (b"x", None),
        (b'x{a="1} 5', None),
        (b"x_total 5", None),
        (b"# x 5", None),
        (b"x" + b" " * 60_000 + b"{", None),  # nor does it take long
        (b'x{a="' + b"a" * 70_000 + b'"} 5', None),
    ],
)
def test_lines_as_exporters_write_them(line: bytes, value: float | None) -> None:
    assert sums(line, ["x"]).get("x") == value


LABEL_VALUE = st.text(max_size=8).filter(lambda text: len(f"{text}x".splitlines()) == 1)


@given(LABEL_VALUE, st.floats(-1e9, 1e9))
def test_any_label_value_can_stand_there(text: str, value: float) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    line = f'x{{a="{quoted}",b="2"}} {value!r}\n'
    assert sums(line.encode(), ["x"]) == {"x": value}


@given(st.binary(max_size=200))
def test_no_bytes_break_it(raw: bytes) -> None:
    assert set(sums(b"x" + raw, ["x"])) <= {"x"}


def test_one_look_at_a_real_page() -> None:
    async def story() -> None:
        async with tcp_server(answering(page(PAGE))) as port:
            before = CLOCK.monotonic()
            sample = await counter(port).look()
            assert (sample.counter, sample.work, sample.text) == (1_200_410.0, 4.0, "")
            assert before <= sample.at <= CLOCK.monotonic()

    run(story())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (page(b"busy", "503 Service Unavailable"), "/metrics answers 503"),
        (b"nonsense\r\n", "is no HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MOST_BYTES + 1), f"larger than {MOST_BYTES} bytes"),
        (page(b"other 1\n"), f"has no metric named {TOKENS}, {STEPS}, {RUNNING}, {WAITING}"),
    ],
)
def test_what_cannot_be_learnt_is_unknown_and_said(raw: bytes, words: str) -> None:
    async def story() -> None:
        async with tcp_server(answering(raw)) as port:
            sample = await counter(port).look()
            assert (sample.counter, sample.work) == (None, None)
            assert words in sample.text
        sample = await counter(port).look()
        assert sample.text == f"127.0.0.1:{port}/metrics: Connection refused"
        async with tcp_server(silent) as port:
            sample = await counter(port, 0.1).look()
            assert sample.text == f"127.0.0.1:{port}/metrics: no answer in time"

    run(story())


def test_the_runner_keeps_what_was_seen_and_says_a_fault_once() -> None:
    async def story() -> None:
        told: list[str] = []
        looks = 0
        body = b"vllm:num_requests_running 1\n"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answering(page(body))(reader, writer)

        def count() -> None:
            nonlocal looks
            looks += 1

        async with tcp_server(serve) as port:
            runner = ProgressRunner(counter(port), 0.01, CLOCK, told.append, count)

            def seen() -> ProgressSeen:
                assert runner.seen is not None
                return runner.seen

            runner.start()
            await until(lambda: looks >= 3)
            assert len(told) == 1
            assert TOKENS in told[0]
            assert seen().counter is None
            body = PAGE
            await until(lambda: seen().counter == 1_200_410.0)
            moved_at, upto = seen().moved_at, looks + 2
            await until(lambda: looks >= upto)
            assert seen().moved_at == moved_at > (seen().work_since or moved_at)
            assert (runner.last_text, len(told)) == ("", 1)
            body = PAGE.replace(b" 10.0\n", b" 2.0\n")
            await until(lambda: seen().moved_at != moved_at)
            await runner.close()

    run(story())
