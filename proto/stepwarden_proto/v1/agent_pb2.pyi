from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNKNOWN: _ClassVar[Phase]
    PHASE_LOADING: _ClassVar[Phase]
    PHASE_COMPILING: _ClassVar[Phase]
    PHASE_WARMUP: _ClassVar[Phase]
    PHASE_PREFILL: _ClassVar[Phase]
    PHASE_DECODE: _ClassVar[Phase]
    PHASE_IDLE: _ClassVar[Phase]
    PHASE_DRAINING: _ClassVar[Phase]

class BeatReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BEAT_REASON_TICK: _ClassVar[BeatReason]
    BEAT_REASON_ATTACH: _ClassVar[BeatReason]
    BEAT_REASON_PHASE: _ClassVar[BeatReason]
    BEAT_REASON_BUSY: _ClassVar[BeatReason]
    BEAT_REASON_IDLE: _ClassVar[BeatReason]
    BEAT_REASON_LEASE: _ClassVar[BeatReason]
    BEAT_REASON_BYE: _ClassVar[BeatReason]
PHASE_UNKNOWN: Phase
PHASE_LOADING: Phase
PHASE_COMPILING: Phase
PHASE_WARMUP: Phase
PHASE_PREFILL: Phase
PHASE_DECODE: Phase
PHASE_IDLE: Phase
PHASE_DRAINING: Phase
BEAT_REASON_TICK: BeatReason
BEAT_REASON_ATTACH: BeatReason
BEAT_REASON_PHASE: BeatReason
BEAT_REASON_BUSY: BeatReason
BEAT_REASON_IDLE: BeatReason
BEAT_REASON_LEASE: BeatReason
BEAT_REASON_BYE: BeatReason

class ClockStamp(_message.Message):
    __slots__ = ("now_ns", "boot_id", "time_namespace")
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    now_ns: int
    boot_id: str
    time_namespace: int
    def __init__(self, now_ns: _Optional[int] = ..., boot_id: _Optional[str] = ..., time_namespace: _Optional[int] = ...) -> None: ...

class OpenStep(_message.Message):
    __slots__ = ("number", "begin_ns", "num_seqs", "num_tokens", "phase")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    number: int
    begin_ns: int
    num_seqs: int
    num_tokens: int
    phase: Phase
    def __init__(self, number: _Optional[int] = ..., begin_ns: _Optional[int] = ..., num_seqs: _Optional[int] = ..., num_tokens: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("name", "begin_ns", "seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    begin_ns: int
    seconds: float
    def __init__(self, name: _Optional[str] = ..., begin_ns: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("unfinished", "since_ns", "loop_turns", "loop_ns")
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    LOOP_TURNS_FIELD_NUMBER: _ClassVar[int]
    LOOP_NS_FIELD_NUMBER: _ClassVar[int]
    unfinished: int
    since_ns: int
    loop_turns: int
    loop_ns: int
    def __init__(self, unfinished: _Optional[int] = ..., since_ns: _Optional[int] = ..., loop_turns: _Optional[int] = ..., loop_ns: _Optional[int] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("worker", "incarnation", "rank", "seq", "reason", "pid", "start_ticks", "clock", "phase", "phase_since_ns", "steps_begun", "steps_ended", "oldest", "in_flight", "cpu_seconds", "rss_bytes", "lease", "work", "page", "agent_version", "detail", "engine", "engine_version", "model", "dtype")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_TICKS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PHASE_SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_ENDED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    rank: str
    seq: int
    reason: BeatReason
    pid: int
    start_ticks: int
    clock: ClockStamp
    phase: Phase
    phase_since_ns: int
    steps_begun: int
    steps_ended: int
    oldest: OpenStep
    in_flight: int
    cpu_seconds: float
    rss_bytes: int
    lease: Lease
    work: Work
    page: str
    agent_version: str
    detail: str
    engine: str
    engine_version: str
    model: str
    dtype: str
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., rank: _Optional[str] = ..., seq: _Optional[int] = ..., reason: _Optional[_Union[BeatReason, str]] = ..., pid: _Optional[int] = ..., start_ticks: _Optional[int] = ..., clock: _Optional[_Union[ClockStamp, _Mapping]] = ..., phase: _Optional[_Union[Phase, str]] = ..., phase_since_ns: _Optional[int] = ..., steps_begun: _Optional[int] = ..., steps_ended: _Optional[int] = ..., oldest: _Optional[_Union[OpenStep, _Mapping]] = ..., in_flight: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., rss_bytes: _Optional[int] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., work: _Optional[_Union[Work, _Mapping]] = ..., page: _Optional[str] = ..., agent_version: _Optional[str] = ..., detail: _Optional[str] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., model: _Optional[str] = ..., dtype: _Optional[str] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...
