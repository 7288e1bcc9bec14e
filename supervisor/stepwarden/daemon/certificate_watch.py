"""Takes up the certificates of listeners when their files have changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.edge.aside import Aside
from stepwarden.edge.certificates import Certificates
from stepwarden.edge.periodic import Periodic
from stepwarden.errors import RefusedError

LOOK_EVERY_SECONDS = 10.0
LOOK_SECONDS = 30.0
"""A file system that has not answered for so long is said."""


class CertificateWatch:
    """Looks every ten seconds. `present`: gives the certificates that are in use now."""

    def __init__(
        self,
        present: Callable[[], Iterable[Certificates]],
        clock: Clock,
        note: Callable[[Event], None],
    ) -> None:
        self._present = present
        self._clock = clock
        self._note = note
        # One for each section: a file system that hangs holds up none of the others.
        self._files: defaultdict[str, Aside] = defaultdict(lambda: Aside(clock))
        self._periodic = Periodic(self._look, LOOK_EVERY_SECONDS, clock)
        self._told: dict[str, str] = {}

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._periodic.start()

    async def close(self) -> None:
        """Look no more."""
        await self._periodic.close()

    async def _look(self) -> bool:
        for certificates in self._present():
            try:
                deadline = Deadline.after(self._clock.monotonic(), LOOK_SECONDS)
                files = self._files[certificates.section]
                changed = await files.call(certificates.refresh, deadline)
                wrong = await files.call(certificates.out_of_date, deadline)
            except TimeoutError:
                self._say(certificates.section, "their file system does not answer")
            except (RefusedError, OSError) as error:
                self._say(certificates.section, str(error))
            else:
                if changed:
                    self._tell(f"new certificates of {certificates.section} are in use")
                self._say_of_time(certificates.section, wrong)
        return True

    def _say(self, section: str, trouble: str) -> None:
        """Tell of a trouble once; the certificates in use stay so."""
        if self._told.get(section) != trouble:
            self._told[section] = trouble
            self._tell(f"the former certificates of {section} stay in use: {trouble}")

    def _say_of_time(self, section: str, wrong: str) -> None:
        """Tell once that clients will refuse what is in use; "": they will not."""
        text = wrong and f"the certificate of {section} {wrong}: clients refuse it"
        if text and self._told.get(section) != text:
            self._tell(text)
        self._told[section] = text

    def _tell(self, text: str) -> None:
        self._note(Event(Kind.DAEMON, text))
