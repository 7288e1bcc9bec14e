"""The launcher process: waits for one request, sets itself up, and becomes the worker.

Run as a plain file by `python -I -S -E`; imports nothing of ours. Descriptor 3 is a socket to the
supervisor. One byte comes first, with the descriptors that go along; then one JSON object up to
end of file. It answers "+" once it has that, the letter of each step that can take long (see
STAGES in launcher.py), and then either execs, which closes the socket (end of file: the worker
runs), or writes "!" and why it could not. End of file without a request means that the supervisor
is gone: nothing is started.

Text arrives as latin-1 of the real bytes, so that no locale can change a path or an argument.
"""

from __future__ import annotations

import _socket  # the half of socket that moves descriptors; all of it would double our start
import errno
import grp
import json
import os
import pwd
import resource
import signal
import stat
import sys
import warnings  # noqa: F401 - exec by PATH imports it, when we may no longer read our own files

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHANNEL = 3
EXIT_NOT_STARTED = 127

_MOST_PASSED = 8
_DESCRIPTOR_BYTES = 4
_NOBODY = 2**32 - 1  # to the kernel this number means: leave it as it is
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4


def main() -> int:
    """Returns only where nothing was started."""
    _close_inherited()
    os.set_inheritable(CHANNEL, False)
    passed, received = _read_request()
    if not received:
        return 0
    try:
        os.write(CHANNEL, b"+")
        _become(json.loads(received), passed)
    except Exception as error:  # whatever went wrong belongs to the supervisor's log
        _tell(str(error) or type(error).__name__)  # a MemoryError has no text
    return EXIT_NOT_STARTED


def _tell(text: str) -> None:
    try:
        os.write(CHANNEL, b"!" + text.encode("utf-8", "backslashreplace")[:4000])
    except BrokenPipeError:  # the supervisor is gone, and nobody is left to be told
        return


def _close_inherited() -> None:
    # Libraries in the supervisor may hold descriptors without the close-on-exec flag.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > CHANNEL:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # the supervisor runs without one; the worker shall not trip over that
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _read_request() -> tuple[list[int], bytes]:
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, CHANNEL)
    room = _socket.CMSG_SPACE(_MOST_PASSED * _DESCRIPTOR_BYTES)
    _, ancillary, _, _ = channel.recvmsg(1, room, _socket.MSG_CMSG_CLOEXEC)
    channel.detach()  # the object would close it
    passed: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = len(data) - len(data) % _DESCRIPTOR_BYTES
            passed += memoryview(data[:whole]).cast("i")
    parts = []
    while part := os.read(CHANNEL, 1 << 16):
        parts.append(part)
    return passed, b"".join(parts)


def _become(request: dict[str, Any], passed: list[int]) -> None:
    argv = [word.encode("latin-1") for word in request["argv"]]
    env = {key.encode("latin-1"): value.encode("latin-1") for key, value in request["env"].items()}
    if request["pid_variable"] is not None:
        env[request["pid_variable"].encode("latin-1")] = b"%d" % os.getpid()
    if request["cgroup"] is not None:
        _join_cgroup(request["cgroup"].encode("latin-1"))
    identity = _look_up(request["user"], request["group"])
    if identity is not None:
        for path in request["owned"]:
            identity.own(path.encode("latin-1"))
    _redirect(request, passed, identity)
    _lose_protection()
    _set_limits(request["limits"], request["descriptors"])
    if request["nice"] is not None:
        _set_nice(request["nice"])
    if identity is not None:
        identity.take(env)
    if request["umask"] is not None:
        os.umask(request["umask"])
    if request["cwd"] is not None:
        _stage("c")
        cwd = request["cwd"].encode("latin-1")
        _attempt("enter the working directory", cwd, lambda: os.chdir(cwd))
    # Python ignores these two for itself, and what is ignored stays so over exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _start(argv, env)


def _join_cgroup(path: bytes) -> None:
    def join() -> None:
        # Never created: in an ordinary directory this must fail.
        members = os.open(path + b"/cgroup.procs", os.O_WRONLY)
        os.write(members, b"0")
        os.close(members)

    hint = "write access to its cgroup.procs and to that of the nearest cgroup above both"
    _attempt("join the cgroup", path, join, hint)


class _Identity:
    """A user and a group by their numbers; `name` and `home`: "" where the user has no entry."""

    def __init__(self, user: str | None, group: str | None) -> None:
        entry = _user_entry(user)
        # Taken now: after the limits and the change of user an import may fail.
        self.forget_capabilities = _dropper_of_ambient_capabilities()
        self.wanted = user
        self.uid = os.getuid() if user is None else int(user) if entry is None else entry.pw_uid
        self.name = "" if entry is None else entry.pw_name
        self.home = "" if entry is None else entry.pw_dir
        if group is not None:
            self.gid = _group_id(group)
        elif entry is not None:
            self.gid = entry.pw_gid
        else:  # our own group, often root's, must not be its by accident
            raise RuntimeError(
                f"cannot become the user {user!r}: it has no entry on this host that names its"
                " group; give the group too"
            )

    def own(self, path: bytes) -> None:
        """Make it the owner of a path; of the link itself, where it is one."""

        def give() -> None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

        _attempt("make its user the owner of", path, give, "root or CAP_CHOWN")

    def take(self, env: dict[bytes, bytes]) -> None:
        """Become it, for good, and complete the environment."""
        target = f"{self.uid}:{self.gid}" if self.wanted is None else self.wanted
        _attempt("set the groups of", target, self._set_groups, "root or CAP_SETGID")
        _attempt("become the user", target, self._set_user, "root or CAP_SETUID")
        if self.wanted is None or not self.name:
            return
        for key, value in ((b"HOME", self.home), (b"USER", self.name), (b"LOGNAME", self.name)):
            env.setdefault(key, os.fsencode(value))

    def _set_groups(self) -> None:
        already = (self.uid, self.gid) == (os.geteuid(), os.getegid())
        try:
            if self.name:
                os.initgroups(self.name, self.gid)
            else:
                os.setgroups([self.gid])
        except PermissionError:
            if not already:  # what it asks for is what it has: no privilege is needed
                raise
        os.setresgid(self.gid, self.gid, self.gid)

    def _set_user(self) -> None:
        if self.uid != os.geteuid():
            # Capabilities that the service manager gave us are lost from root on, not otherwise.
            self.forget_capabilities()
        os.setresuid(self.uid, self.uid, self.uid)


def _look_up(user: str | None, group: str | None) -> _Identity | None:
    if user is None and group is None:
        return None
    _stage("u")
    return _Identity(user, group)


def _user_entry(user: str | None) -> pwd.struct_passwd | None:
    """None where a number has no entry; a name must have one."""
    number = os.getuid() if user is None else _number(user)
    try:
        return pwd.getpwnam(user or "") if number is None else pwd.getpwuid(number)
    except (KeyError, ValueError):
        if number is None:
            raise RuntimeError(
                f"cannot become the user {user!r}: there is no such user on this host"
            ) from None
        return None


def _group_id(group: str) -> int:
    number = _number(group)
    if number is not None:
        return number
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise RuntimeError(
            f"cannot take the group {group!r}: there is no such group on this host"
        ) from None


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    if int(text) >= _NOBODY:
        raise RuntimeError(f"cannot use {text!r} as a user or group: too large a number")
    return int(text)


def _dropper_of_ambient_capabilities() -> Callable[[], object]:
    import ctypes  # here, because most starts do without

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _lose_protection() -> None:
    # The service manager may spare the supervisor when memory runs out; a worker, which is where
    # the memory is, must not inherit that. Raising one's own score needs no privilege.
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as score:
            if int(score.read()) < 0:
                score.seek(0)
                score.write("0")
    except (OSError, ValueError):  # no such file, or not ours to change: start it all the same
        return


def _set_limits(limits: dict[str, int | None], descriptors: int | None) -> None:
    if descriptors is not None and "nofile" not in limits:
        _limit_descriptors(descriptors)
    # The address space last: it may leave us hardly any room.
    for name in sorted(limits, key=lambda name: name == "as"):
        _set_limit(name, limits[name])


def _set_limit(name: str, value: int | None) -> None:
    which = getattr(resource, f"RLIMIT_{name.upper()}", None)
    if which is None:
        raise RuntimeError(f"cannot set the limit {name!r}: this system does not know it")
    number = _most(name) if value is None else value
    try:
        resource.setrlimit(which, (number, number))
    except (OSError, ValueError):  # resource tells EPERM as a ValueError
        hard = resource.getrlimit(which)[1]
        shown = "unlimited" if hard == resource.RLIM_INFINITY else hard
        hint = f", and no more than fs.nr_open ({_most(name)})" if name == "nofile" else ""
        raise RuntimeError(
            f"cannot set the limit {name} to {'unlimited' if value is None else value}:"
            f" Operation not permitted (EPERM); above {shown}, the hard limit here, it takes root"
            f" or CAP_SYS_RESOURCE{hint}"
        ) from None


def _most(name: str) -> int:
    """What unlimited means: for descriptors the kernel has a ceiling."""
    if name != "nofile":
        return resource.RLIM_INFINITY
    with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
        return int(file.read())


def _limit_descriptors(soft: int) -> None:
    # The supervisor raised its own.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (OSError, ValueError):  # no reason not to start it
        return


def _set_nice(value: int) -> None:
    def set_it() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, value)

    _attempt("set nice to", value, set_it, "root or CAP_SYS_NICE to go below the present value")


def _redirect(request: dict[str, Any], passed: list[int], identity: _Identity | None) -> None:
    if request["stdout"] is not None:
        _stage("o")
        path = request["stdout"].encode("latin-1")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC
        output = _attempt("open the output file", path, lambda: os.open(path, flags, 0o640))
        os.dup2(output, 1)
        os.dup2(output, 2)
    for descriptor, targets in zip(passed, request["streams"], strict=True):
        if identity is not None and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            _hand_over(descriptor, identity.uid)
        for target in targets:
            os.dup2(descriptor, target)


def _hand_over(pipe: int, uid: int) -> None:
    # Programs that open /dev/stderr anew need to own the pipe behind it.
    try:
        os.fchown(pipe, uid, -1)
    except OSError:  # most programs never do
        return


def _start(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    _stage("x")
    path = argv[0]
    try:
        _attempt("start", path, lambda: os.execvpe(path, argv, env))
    except RuntimeError as error:
        text = str(error)
        if "(ENOENT)" in text and b"/" in path and os.path.exists(path):
            text += "; the file is there, the interpreter that it names is not"
        if "(EAGAIN)" in text:
            text += "; its user has as many processes as limits.nproc allows"
        raise RuntimeError(text) from None


def _stage(letter: str) -> None:
    os.write(CHANNEL, letter.encode("ascii"))


def _attempt(what: str, target: object, action: Callable[[], Any], privilege: str = "") -> Any:
    shown = os.fsdecode(target) if isinstance(target, bytes) else target
    try:
        return action()
    except ValueError as error:  # a NUL byte, or "=" in the name of a variable
        raise RuntimeError(f"cannot {what} {shown!r}: {error}") from None
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "?")
        text = f"cannot {what} {shown!r}: {error.strerror} ({code})"
        if privilege and code in ("EPERM", "EACCES"):
            text += f"; it takes {privilege}"
        raise RuntimeError(text) from None


if __name__ == "__main__":
    sys.exit(main())
