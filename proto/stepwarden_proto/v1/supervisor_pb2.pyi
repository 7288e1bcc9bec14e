from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Worker(_message.Message):
    __slots__ = ("name", "state", "cause", "sentence", "incarnation", "pid", "state_age_seconds", "uptime_seconds", "restarts_used", "restarts_limit", "last_exit", "backend", "ranks", "startup_left_seconds", "restart_in_seconds", "agent_silent", "leftover_pids", "false_alarms", "deaths", "windows_granted", "last_death", "runner", "unit", "cgroup", "group", "held", "probe", "output", "restart_needed", "removed", "learn", "mode", "would_be_dead", "diagnosis", "grounds", "diagnosed_rank")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_USED_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    LAST_EXIT_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STARTUP_LEFT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESTART_IN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AGENT_SILENT_FIELD_NUMBER: _ClassVar[int]
    LEFTOVER_PIDS_FIELD_NUMBER: _ClassVar[int]
    FALSE_ALARMS_FIELD_NUMBER: _ClassVar[int]
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    LAST_DEATH_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RESTART_NEEDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    LEARN_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WOULD_BE_DEAD_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSIS_FIELD_NUMBER: _ClassVar[int]
    GROUNDS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSED_RANK_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    cause: str
    sentence: str
    incarnation: str
    pid: int
    state_age_seconds: float
    uptime_seconds: float
    restarts_used: int
    restarts_limit: int
    last_exit: str
    backend: str
    ranks: _containers.RepeatedCompositeFieldContainer[Rank]
    startup_left_seconds: float
    restart_in_seconds: float
    agent_silent: bool
    leftover_pids: _containers.RepeatedScalarFieldContainer[int]
    false_alarms: int
    deaths: int
    windows_granted: int
    last_death: str
    runner: str
    unit: str
    cgroup: str
    group: str
    held: str
    probe: str
    output: _containers.RepeatedScalarFieldContainer[str]
    restart_needed: str
    removed: bool
    learn: str
    mode: str
    would_be_dead: bool
    diagnosis: str
    grounds: str
    diagnosed_rank: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., cause: _Optional[str] = ..., sentence: _Optional[str] = ..., incarnation: _Optional[str] = ..., pid: _Optional[int] = ..., state_age_seconds: _Optional[float] = ..., uptime_seconds: _Optional[float] = ..., restarts_used: _Optional[int] = ..., restarts_limit: _Optional[int] = ..., last_exit: _Optional[str] = ..., backend: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[Rank, _Mapping]]] = ..., startup_left_seconds: _Optional[float] = ..., restart_in_seconds: _Optional[float] = ..., agent_silent: bool = ..., leftover_pids: _Optional[_Iterable[int]] = ..., false_alarms: _Optional[int] = ..., deaths: _Optional[int] = ..., windows_granted: _Optional[int] = ..., last_death: _Optional[str] = ..., runner: _Optional[str] = ..., unit: _Optional[str] = ..., cgroup: _Optional[str] = ..., group: _Optional[str] = ..., held: _Optional[str] = ..., probe: _Optional[str] = ..., output: _Optional[_Iterable[str]] = ..., restart_needed: _Optional[str] = ..., removed: bool = ..., learn: _Optional[str] = ..., mode: _Optional[str] = ..., would_be_dead: bool = ..., diagnosis: _Optional[str] = ..., grounds: _Optional[str] = ..., diagnosed_rank: _Optional[str] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("name", "pid", "phase", "step", "num_seqs", "num_tokens", "step_age_seconds", "budget_seconds", "budget_left_seconds", "beat_age_seconds", "cpu_percent", "steps_ended", "rss_bytes", "in_flight", "requests_unfinished", "loop_turns", "loop_age_seconds", "steps_unrecorded", "beats_refused", "stamps_clamped", "agent_version", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LEFT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BEAT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STEPS_ENDED_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    LOOP_TURNS_FIELD_NUMBER: _ClassVar[int]
    LOOP_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_UNRECORDED_FIELD_NUMBER: _ClassVar[int]
    BEATS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    STAMPS_CLAMPED_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    pid: int
    phase: str
    step: int
    num_seqs: int
    num_tokens: int
    step_age_seconds: float
    budget_seconds: float
    budget_left_seconds: float
    beat_age_seconds: float
    cpu_percent: float
    steps_ended: int
    rss_bytes: int
    in_flight: int
    requests_unfinished: int
    loop_turns: int
    loop_age_seconds: float
    steps_unrecorded: int
    beats_refused: int
    stamps_clamped: int
    agent_version: str
    detail: str
    def __init__(self, name: _Optional[str] = ..., pid: _Optional[int] = ..., phase: _Optional[str] = ..., step: _Optional[int] = ..., num_seqs: _Optional[int] = ..., num_tokens: _Optional[int] = ..., step_age_seconds: _Optional[float] = ..., budget_seconds: _Optional[float] = ..., budget_left_seconds: _Optional[float] = ..., beat_age_seconds: _Optional[float] = ..., cpu_percent: _Optional[float] = ..., steps_ended: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., in_flight: _Optional[int] = ..., requests_unfinished: _Optional[int] = ..., loop_turns: _Optional[int] = ..., loop_age_seconds: _Optional[float] = ..., steps_unrecorded: _Optional[int] = ..., beats_refused: _Optional[int] = ..., stamps_clamped: _Optional[int] = ..., agent_version: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers", "version", "loop_age_seconds", "trouble", "configuration", "next_page_token", "total", "runner_note", "doubt_score", "doubt_reason", "governor", "stacks_note")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOOP_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    RUNNER_NOTE_FIELD_NUMBER: _ClassVar[int]
    DOUBT_SCORE_FIELD_NUMBER: _ClassVar[int]
    DOUBT_REASON_FIELD_NUMBER: _ClassVar[int]
    GOVERNOR_FIELD_NUMBER: _ClassVar[int]
    STACKS_NOTE_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    version: str
    loop_age_seconds: float
    trouble: str
    configuration: Configuration
    next_page_token: str
    total: int
    runner_note: str
    doubt_score: int
    doubt_reason: str
    governor: str
    stacks_note: str
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., version: _Optional[str] = ..., loop_age_seconds: _Optional[float] = ..., trouble: _Optional[str] = ..., configuration: _Optional[_Union[Configuration, _Mapping]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ..., runner_note: _Optional[str] = ..., doubt_score: _Optional[int] = ..., doubt_reason: _Optional[str] = ..., governor: _Optional[str] = ..., stacks_note: _Optional[str] = ...) -> None: ...

class Configuration(_message.Message):
    __slots__ = ("path", "loaded_at", "failed_at", "failure", "sentence")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LOADED_AT_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    path: str
    loaded_at: str
    failed_at: str
    failure: str
    sentence: str
    def __init__(self, path: _Optional[str] = ..., loaded_at: _Optional[str] = ..., failed_at: _Optional[str] = ..., failure: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ("dry_run", "wait_seconds")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    wait_seconds: float
    def __init__(self, dry_run: bool = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ("applied", "changes", "problems", "sentence", "warnings", "unsettled")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    UNSETTLED_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    changes: _containers.RepeatedCompositeFieldContainer[ReloadChange]
    problems: _containers.RepeatedScalarFieldContainer[str]
    sentence: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    unsettled: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, applied: bool = ..., changes: _Optional[_Iterable[_Union[ReloadChange, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., sentence: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ..., unsettled: _Optional[_Iterable[str]] = ...) -> None: ...

class ReloadChange(_message.Message):
    __slots__ = ("subject", "effect", "sentence", "keys")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    effect: str
    sentence: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subject: _Optional[str] = ..., effect: _Optional[str] = ..., sentence: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class GetWorkerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetWorkerResponse(_message.Message):
    __slots__ = ("worker", "learned")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEARNED_FIELD_NUMBER: _ClassVar[int]
    worker: Worker
    learned: _containers.RepeatedCompositeFieldContainer[Learned]
    def __init__(self, worker: _Optional[_Union[Worker, _Mapping]] = ..., learned: _Optional[_Iterable[_Union[Learned, _Mapping]]] = ...) -> None: ...

class Learned(_message.Message):
    __slots__ = ("rank", "of", "rows", "slow", "steps")
    RANK_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    rank: str
    of: str
    rows: _containers.RepeatedCompositeFieldContainer[LearnedRow]
    slow: float
    steps: int
    def __init__(self, rank: _Optional[str] = ..., of: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[LearnedRow, _Mapping]]] = ..., slow: _Optional[float] = ..., steps: _Optional[int] = ...) -> None: ...

class LearnedRow(_message.Message):
    __slots__ = ("num_tokens", "seconds", "steps")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    num_tokens: int
    seconds: float
    steps: int
    def __init__(self, num_tokens: _Optional[int] = ..., seconds: _Optional[float] = ..., steps: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("follow", "worker", "limit", "kinds", "since_unix_seconds")
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    follow: bool
    worker: str
    limit: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    since_unix_seconds: float
    def __init__(self, follow: bool = ..., worker: _Optional[str] = ..., limit: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., since_unix_seconds: _Optional[float] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "time", "monotonic", "worker", "incarnation", "kind", "from_state", "to_state", "cause", "rank", "sentence", "data_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    MONOTONIC_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FROM_STATE_FIELD_NUMBER: _ClassVar[int]
    TO_STATE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    time: str
    monotonic: float
    worker: str
    incarnation: str
    kind: str
    from_state: str
    to_state: str
    cause: str
    rank: str
    sentence: str
    data_json: str
    def __init__(self, id: _Optional[int] = ..., time: _Optional[str] = ..., monotonic: _Optional[float] = ..., worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., kind: _Optional[str] = ..., from_state: _Optional[str] = ..., to_state: _Optional[str] = ..., cause: _Optional[str] = ..., rank: _Optional[str] = ..., sentence: _Optional[str] = ..., data_json: _Optional[str] = ...) -> None: ...

class WorkerCommandRequest(_message.Message):
    __slots__ = ("name", "wait_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    wait_seconds: float
    def __init__(self, name: _Optional[str] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class WorkerCommandResponse(_message.Message):
    __slots__ = ("state", "sentence")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    state: str
    sentence: str
    def __init__(self, state: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("worker", "num_seqs", "num_tokens", "phase")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    num_seqs: int
    num_tokens: int
    phase: str
    def __init__(self, worker: _Optional[str] = ..., num_seqs: _Optional[int] = ..., num_tokens: _Optional[int] = ..., phase: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("budget_seconds", "hard_cap_seconds", "arithmetic")
    BUDGET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HARD_CAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    budget_seconds: float
    hard_cap_seconds: float
    arithmetic: str
    def __init__(self, budget_seconds: _Optional[float] = ..., hard_cap_seconds: _Optional[float] = ..., arithmetic: _Optional[str] = ...) -> None: ...

class ListIncidentsRequest(_message.Message):
    __slots__ = ("worker", "since_unix_seconds", "limit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    since_unix_seconds: float
    limit: int
    def __init__(self, worker: _Optional[str] = ..., since_unix_seconds: _Optional[float] = ..., limit: _Optional[int] = ...) -> None: ...

class ListIncidentsResponse(_message.Message):
    __slots__ = ("incidents",)
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    incidents: _containers.RepeatedCompositeFieldContainer[Incident]
    def __init__(self, incidents: _Optional[_Iterable[_Union[Incident, _Mapping]]] = ...) -> None: ...

class Incident(_message.Message):
    __slots__ = ("id", "size", "head_json", "seal", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HEAD_JSON_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    size: int
    head_json: str
    seal: str
    error: str
    def __init__(self, id: _Optional[str] = ..., size: _Optional[int] = ..., head_json: _Optional[str] = ..., seal: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class ExportIncidentRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ExportIncidentResponse(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    def __init__(self, chunk: _Optional[bytes] = ...) -> None: ...
