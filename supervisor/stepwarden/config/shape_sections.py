"""Sections of one worker alone: what it waits for, what tells how it does, who else starts it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stepwarden.config.fields import Address, Choice, Duration, Flag, Text, Whole
from stepwarden.config.quantities import Account, OneOrMore
from stepwarden.config.sections import (
    ABSOLUTE_PATH,
    ARGUMENT,
    DAY,
    HOUR,
    SHORTEST,
    RestartTimes,
    Section,
)

NAME_RULE = "a letter or digit, then letters, digits, '.', '_' or '-', 64 at most"
NAME = Text(NAME_RULE, pattern="[A-Za-z0-9][A-Za-z0-9._-]{0,63}", key=True)
PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
HOST = r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)"
URL = Text(
    "a URL such as http://127.0.0.1:8000/health", pattern=f"https?://{HOST}(:{PORT})?([/?][!-~]*)?"
)
METRIC = Text("a metric's name, without labels", pattern="[A-Za-z_:][A-Za-z0-9_:]*")
ASKED = Address(asked=True)


class AttachSection(Section):
    """A worker that something else starts; its agent tells of it."""

    expect_user: Annotated[str, Account("user")] = Field(
        description="Whose process it is, by name or number; an agent of anybody else is refused."
    )


class PreStartSection(Section):
    """A command before each start."""

    command: list[Annotated[str, ARGUMENT]] = Field(
        min_length=1, description="Program and arguments, such as [docker, rm, -f, NAME]."
    )
    ignore_failure: Annotated[bool, Flag()] = Field(
        default=False, description="true: the worker starts whatever became of it."
    )
    timeout: Annotated[float, Duration(SHORTEST, HOUR)] = Field(
        default=30.0, description="It is ended then, and that is a failure."
    )


class ReadySection(Section):
    """What tells that a worker is ready; one of agent, tcp, http, grpc, command, delay."""

    agent: Annotated[bool, Flag()] | None = Field(
        default=None, description="true: its agent, as without this section."
    )
    tcp: Annotated[str | None, ASKED] = Field(
        default=None, description="HOST:PORT that takes connections."
    )
    http: Annotated[str | None, URL] = Field(
        default=None, description="URL that answers with `status`."
    )
    status: Annotated[int, Whole(100, 599)] = Field(default=200, description="With http.")
    grpc: Annotated[str | None, ASKED] = Field(
        default=None, description="HOST:PORT whose grpc.health.v1 says SERVING."
    )
    service: Annotated[str, Text("text", empty=True)] = Field(
        default="", description='With grpc: the service that is asked for. "": the server.'
    )
    command: list[Annotated[str, ARGUMENT]] | None = Field(
        default=None, description="Program and arguments that exit with 0."
    )
    delay: Annotated[float | None, Duration(SHORTEST, DAY)] = Field(
        default=None, description="It is ready when it has run for so long."
    )
    interval: Annotated[float, Duration(SHORTEST, HOUR)] = Field(
        default=1.0, description="How often it is asked until it is ready."
    )
    timeout: Annotated[float, Duration(SHORTEST, HOUR)] = Field(
        default=2.0, description="How long one answer may take."
    )


class ProgressSection(Section):
    """A Prometheus counter that stands still while work is present is a passed deadline."""

    url: Annotated[str, URL] = Field(description="The page of metrics.")
    counter: Annotated[list[str], OneOrMore(METRIC)] = Field(
        description="Counters that grow with finished work; any of them counts."
    )
    work: Annotated[list[str], OneOrMore(METRIC)] = Field(
        description="Gauges that are above 0 while there is work."
    )
    interval: Annotated[float, Duration(SHORTEST, HOUR)] = Field(
        default=5.0, description="How often the page is read."
    )
    budget: Annotated[float, Duration(1.0, DAY)] = Field(
        default=300.0,
        description="How long the counters may stand still with work present. Longer than the"
        " longest honest step: a counter cannot tell it from a hang.",
    )


class ReleaseSection(Section):
    """What must be free before each start."""

    ports: list[Annotated[int, Whole(1, 65535)]] = Field(
        default=[], description="TCP ports of this host that nobody may listen on."
    )
    files: list[Annotated[str, ABSOLUTE_PATH]] = Field(
        default=[], description="Files that nobody may have locked."
    )
    command: list[Annotated[str, ARGUMENT]] | None = Field(
        default=None, description="Program and arguments that exit with 0, say for GPU memory."
    )
    limit: Annotated[float, Duration(SHORTEST, DAY)] = Field(
        default=120.0, description="After this the worker is FAILED, with the reason."
    )


class GroupSection(Section):
    """Workers that belong together: start order, and who is started again with whom."""

    members: list[Annotated[str, NAME]] = Field(
        min_length=1, description="Their names, in the order in which they start."
    )
    on_dead: Annotated[str, Choice(("restart_member", "restart_group", "restart_rest"))] = Field(
        default="restart_group",
        description="Who starts again when one dies. restart_member: that one. restart_group: all."
        " restart_rest: that one and those after it.",
    )
    restart: RestartTimes = Field(
        default=RestartTimes(),
        description="One restart budget for all members, over that of `defaults`. Of restart, a"
        " member itself says `on` alone.",
    )
