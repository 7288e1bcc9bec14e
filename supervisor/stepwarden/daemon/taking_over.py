"""Takes over the lives that a daemon finds: at its start, and what systemd tells of only later."""

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

Recalled = dict[str, tuple[Kept | None, bool]]
"""What was kept of each worker, and whether that was since this host booted."""


async def take_over(machine: Machine, found: Iterable[LifeRecord], resume: Resume) -> None:
    """Go on where an earlier daemon left off, or begin."""
    stock, recalled = _stock(machine, found)
    await machine.nobodys.end(stock.nobodys)
    machine.nobodys.forget_workers()
    for unit in machine.units.values():
        await machine.adoption.prepare(stock, unit)
    for name, unit in machine.units.items():
        resume(unit, stock, *recalled[name])


async def take_over_late(machine: Machine, found: Iterable[LifeRecord], resume: Resume) -> None:
    """Lives that nobody knew of go on or are ended; beside none of them another one begins.

    A worker that runs another life by now keeps that one.
    """
    known = {record.incarnation for record in machine.store.lives()}
    unknown = [record for record in found if record.incarnation not in known]
    stock, recalled = _stock(machine, unknown)
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


def _stock(machine: Machine, found: Iterable[LifeRecord]) -> tuple[Stock, Recalled]:
    recalled = {name: machine.keeper.recall(name) for name in machine.units}
    kept = {name: told if same else None for name, (told, same) in recalled.items()}
    return take_stock(found, machine.units, kept), recalled
