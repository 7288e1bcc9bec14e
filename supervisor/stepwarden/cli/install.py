"""`stepwarden install`: lays the service down, says what it did and what is left to do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from stepwarden.cli.arguments import path
from stepwarden.cli.output import complain
from stepwarden.errors import ExitCode, RefusedError, StepwardenError, UsageError

if TYPE_CHECKING:
    from stepwarden.install.lay import Found
    from stepwarden.install.ways import Place, Way

MODE_HELP = (
    "root: as root, each worker in a unit of its own (default); spawn: as root, with the sandbox"
    " loosened for `runner: spawn`; user: as a user of its own that spawns its workers; units: as"
    " a user of its own that starts pre-installed units, by a polkit rule"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("--mode", choices=("root", "spawn", "user", "units"), help=MODE_HELP)
    parser.add_argument(
        "--user", metavar="NAME", help="with user and units: the daemon's user (stepwarden)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and do nothing"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace files that were edited (not the YAML)"
    )
    parser.add_argument(
        "--uninstall", action="store_true", help="take away what an installation laid down"
    )
    parser.add_argument(
        "--root", type=path, default=Path("/"), metavar="DIR", help="stands for / (an image)"
    )
    parser.add_argument(
        "--prefix",
        type=path,
        metavar="DIR",
        help="for packages: DIR/lib/systemd/system and so on, say /usr, instead of /etc",
    )
    parser.add_argument(
        "--exec",
        dest="program",
        type=path,
        metavar="PATH",
        help="the stepwarden command of the unit (default: this installation's)",
    )


def run(options: argparse.Namespace) -> int:
    """0: all lies as it should; ACTION_FAILED: something was left that somebody has edited."""
    from stepwarden.install.ways import Place

    prefix = options.prefix
    if prefix is not None and not prefix.is_absolute():
        raise UsageError(f"--prefix {prefix} is not absolute")
    place = Place(options.root.absolute(), prefix)
    way = _way(options, place)
    try:
        if options.uninstall:
            return _uninstall(way, place, options.dry_run)
        return _install(way, place, options)
    except PermissionError as error:
        raise RefusedError(f"cannot write {error.filename}: {error.strerror}; be root") from None
    except OSError as error:
        if error.filename is None:  # of our own output, which is told elsewhere
            raise
        raise StepwardenError(f"cannot write {error.filename}: {error.strerror}") from None


def _way(options: argparse.Namespace, place: Place) -> Way:
    """What the command line says, else as it is installed, else as shipped."""
    from stepwarden.install.lay import installed_stamp
    from stepwarden.install.ways import USER, Way, this_program

    before = installed_stamp(place)
    mode = options.mode or (before.mode if before else "root")
    if options.user is not None and mode not in ("user", "units"):
        raise UsageError(f"--user is for --mode user and units; with {mode} the daemon is root")
    user = options.user or (before.user if before else USER)
    program = this_program()
    if options.program is not None:
        if not options.program.is_absolute():
            raise UsageError(f"--exec {options.program} is not absolute")
        program = (str(options.program),)
    return Way(mode, user, program)


def _install(way: Way, place: Place, options: argparse.Namespace) -> int:
    from stepwarden.install.lay import compare, may_replace, write
    from stepwarden.install.ways import command_line, pieces

    print(f"mode {way.mode}, starts {command_line(way.program)}")
    left = False
    for found in map(compare, pieces(way, place)):
        replaced = may_replace(found, options.force)
        left |= not replaced and found.state in ("edited", "foreign", "unreadable")
        print(_line(found, replaced, options.dry_run))
        if replaced and not options.dry_run:
            write(found.piece)
    left |= _clear_other_ways(way, place, options.dry_run)
    for hint in _left_to_do(way, place):
        print(hint)
    return int(ExitCode.ACTION_FAILED if left else ExitCode.OK)


def _line(found: Found, replaced: bool, dry_run: bool) -> str:
    file = found.piece.path
    if replaced:
        verb = "writes" if found.state == "missing" else "replaces"
        verb = f"would {verb[:-1]}" if dry_run else verb
        return f"{verb} {file}" + (f" ({found.detail})" if found.detail else "")
    if found.state == "same":
        return f"has {file}"
    if found.state == "kept":
        return f"leaves {file}: it is yours"
    if found.state == "unreadable":
        return f"LEAVES {file}: {found.detail}"
    why = "it was edited" if found.state == "edited" else "something else laid it down"
    return f"LEAVES {file}: {why}; --force replaces it, `systemctl edit` is the place for changes"


def _clear_other_ways(way: Way, place: Place, dry_run: bool) -> bool:
    """Drop-ins of another way would still hold; True where one has to stay."""
    from stepwarden.install.lay import compare, others, remove

    left = False
    for found in map(compare, others(way, place)):
        if found.stamped and found.state in ("same", "older"):
            print(f"{'would remove' if dry_run else 'removes'} {found.piece.path} (another mode)")
            if not dry_run:
                remove(found.piece.path)
        elif found.state != "missing":
            left = True
            text = "it belongs to another mode, and it was edited or not laid down by this"
            print(f"LEAVES {found.piece.path}: {text}")
    return left


def _left_to_do(way: Way, place: Place) -> list[str]:
    from stepwarden.install.ways import CONFIG

    steps = []
    if way.mode in ("user", "units"):
        steps.append("systemd-sysusers")
    steps += [
        "systemd-tmpfiles --create stepwarden.conf",
        "systemctl daemon-reload",
        f"stepwarden check {CONFIG}",
        "systemctl enable --now stepwarden",
    ]
    if place.root != Path("/"):
        return [f"left to do, on the host itself: {'; '.join(steps)}"]
    return ["left to do:", *(f"  {step}" for step in steps), *_warnings(way)]


def _warnings(way: Way) -> list[str]:
    """What would keep the unit from starting."""
    program = Path(way.program[0])
    if way.mode in ("user", "units"):
        from stepwarden.edge.users import Owner, closed_to

        closed = closed_to(Owner(65534, 65534), program.resolve().parent)
        if closed:
            text = f"user {way.user} may not be able to run {program}: it cannot pass {closed}"
            return [f"warning: {text}"]
    return []


def _uninstall(way: Way, place: Place, dry_run: bool) -> int:
    from stepwarden.install.lay import compare, installed, others, remove
    from stepwarden.install.ways import CONFIG, pieces

    every = [*pieces(way, place), *others(way, place)]
    going = installed(every)
    for found in going:
        print(f"{'would remove' if dry_run else 'removes'} {found.piece.path}")
        if not dry_run:
            remove(found.piece.path)
    edited = [one for one in map(compare, every) if one.state in ("edited", "foreign")]
    for found in edited:
        complain(f"stepwarden: leaves {found.piece.path}: it was edited, or is not ours")
    print(f"left alone: {place.at(CONFIG)}, /var/lib/stepwarden, users")
    where = "" if place.root == Path("/") else ", on the host itself"
    print(
        f"left to do{where}: systemctl disable --now stepwarden"
        " (before this, it stops the workers too);"
    )
    print("  systemctl daemon-reload")
    return int(ExitCode.ACTION_FAILED if edited else ExitCode.OK)
