"""Agents that send far too much: refused with a clear status, at no cost to beats and memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc
from support.crew import Crew, secrets_of, stub

pytestmark = pytest.mark.timeout(180)

MIB = 1024 * 1024
MOST_GROWTH = 60 * MIB


def tell(channel: grpc.Channel, token: str, message: agent_pb2.Beat) -> str:
    """What becomes of one message: "acknowledged", or the name of the refusal."""
    make = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
    metadata = ((TOKEN_METADATA_KEY, token),)
    answers = make.Attach(iter([message]), metadata=metadata, timeout=20.0)
    try:
        return "acknowledged" if next(answers, None) else "closed"
    except grpc.RpcError as error:
        return str(error.code().name)


def acknowledged(channel: grpc.Channel, token: str, messages: Iterator[agent_pb2.Beat]) -> int:
    """How many messages of one stream were acknowledged."""
    make = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
    return sum(1 for _ in make.Attach(messages, metadata=((TOKEN_METADATA_KEY, token),)))


def test_o_grpc_5_large_reports_cost_neither_beats_nor_memory() -> None:
    with Crew({"w": stub()}) as crew:
        crew.ready()
        life = secrets_of(crew.status()["w"].pid)
        token, target = life["STEPWARDEN_TOKEN"], life["STEPWARDEN_TARGET"]
        named: dict[str, Any] = {
            "worker": "w",
            "incarnation": life["STEPWARDEN_INCARNATION"],
            "seq": 1,
        }
        plain = agent_pb2.Beat(**named, rank="1", pid=1)
        options = [*CLIENT_OPTIONS, ("grpc.max_send_message_length", -1)]
        daemon = psutil.Process(crew.pid)
        with grpc.insecure_channel(target, options=options) as channel:
            assert tell(channel, token, plain) == "acknowledged"
            before = daemon.memory_info().rss
            for number in range(20):
                text = agent_pb2.Beat(**named, rank="1", detail="x" * 5 * MIB)
                assert tell(channel, token, text) == "RESOURCE_EXHAUSTED"
                name = agent_pb2.Beat(**{**named, "worker": "w" * MIB}, rank="1")
                assert tell(channel, token, name) == "RESOURCE_EXHAUSTED"
                lease = agent_pb2.Lease(name="l" * 60_000, seconds=100.0)
                beat = agent_pb2.Beat(**{**named, "seq": 2 + number}, rank="1", lease=lease, pid=1)
                assert tell(channel, token, beat) == "acknowledged"
            assert tell(channel, "t" * MIB, plain) != "acknowledged"
            # Fields that nobody knows stand for labels: 10 000 of them are read and forgotten.
            labels = agent_pb2.Beat.FromString(
                plain.SerializeToString() + b"\xa2\x06\x01x" * 10_000
            )
            assert tell(channel, token, labels) == "acknowledged"
            many = (agent_pb2.Beat(**named, rank=f"r{number}", pid=1) for number in range(400))
            assert acknowledged(channel, token, many) == 400
            assert tell(channel, token, agent_pb2.Beat(**{**named, "seq": 99}, rank="1", pid=1))
        worker = crew.status()["w"]
        assert len(worker.ranks) <= 256
        assert daemon.memory_info().rss < before + MOST_GROWTH
        seen = next(rank for rank in worker.ranks if rank.name == "0")
        assert seen.beat_age_seconds < 3.0 + crew.host.worst
        shown = crew.cli("status", "--json", "--config", str(crew.config))
        assert shown.returncode == 0, shown.stderr
