"""Takes over what systemd tells of only later: it was silent when this daemon took stock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwarden.core.memory import Kept
from stepwarden.core.resume import Found
from stepwarden.daemon.adoption import Stock, take_stock
from stepwarden.daemon.assembly import Machine
from stepwarden.daemon.unit import Unit
from stepwarden.edge.state_records import LifeRecord

Resume = Callable[[Unit, Stock, Kept | None, bool], None]
"""Lets a worker begin where the stock, and what was kept of it, say."""


async def take_over_late(machine: Machine, found: Iterable[LifeRecord], resume: Resume) -> None:
    """Lives that nobody knew of go on or are ended; beside none of them another one begins.

    A worker that runs another life by now keeps that one.
    """
    known = {record.incarnation for record in machine.store.lives()}
    recalled = {name: machine.keeper.recall(name) for name in machine.units}
    kept = {name: told if same else None for name, (told, same) in recalled.items()}
    unknown = [record for record in found if record.incarnation not in known]
    stock = take_stock(unknown, machine.units, kept)
    ending = [*stock.nobodys]
    for name, unit in list(machine.units.items()):
        if stock.found(name) is Found.NOTHING:
            continue
        if unit.life is not None and unit.life.launching:
            ending += [record for record in unknown if record.worker == name]
            continue
        if unit.life is not None:
            machine.actor.let_go(unit, unit.life)
        await machine.adoption.prepare(stock, unit)
        resume(unit, stock, *recalled[name])
    await machine.nobodys.end(ending)
