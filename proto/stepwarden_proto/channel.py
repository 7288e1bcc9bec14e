"""gRPC channel options of both ends, in one place so that they fit each other.

A client that pings more often than the server allows is thrown off the connection, so the two
keepalive settings belong together. All values are in milliseconds or bytes.
"""

from __future__ import annotations

from typing import Final

KEEPALIVE_TIME_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
MIN_PING_INTERVAL_MS: Final = 5_000
INITIAL_BACKOFF_MS: Final = 200
MAX_BACKOFF_MS: Final = 1_600  # gRPC spreads it by a fifth; so it stays below 2 s
CONNECT_TIMEOUT_MS: Final = 5_000
MAX_BEAT_BYTES: Final = 64 * 1024
"""The agent service refuses a larger message; a beat with all texts at their limits fits."""

STATE_METADATA_KEY: Final = "stepwarden-state"
"""Trailing metadata of a command that has not come about in time: the state of the worker."""

MAX_DETAIL_BYTES: Final = 4096
MAX_LEASE_NAME_BYTES: Final = 64
MAX_VERSION_BYTES: Final = 64
MAX_ABOUT_BYTES: Final = 256  # each of engine, its version, model and dtype

_KEEPALIVE: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # A frozen peer takes the ping and never answers: that wait is bounded by this one alone.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)

CLIENT_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_KEEPALIVE,
    # The supervisor is local; a company's http_proxy must never stand between.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", INITIAL_BACKOFF_MS),
    ("grpc.max_reconnect_backoff_ms", MAX_BACKOFF_MS),
    # In spite of its name this is how long one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    # Channels of one process share connections and their backoff unless told not to.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)

SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *_KEEPALIVE,
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ("grpc.max_receive_message_length", MAX_BEAT_BYTES),
    # Else every beat is followed by a ping that measures the line: for streams that carry a few
    # hundred bytes a second it costs both ends a wake-up and finds nothing.
    ("grpc.http2.bdp_probe", 0),
)
