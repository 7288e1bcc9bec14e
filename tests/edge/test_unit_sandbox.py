from __future__ import annotations

from stepwarden.edge.unit_sandbox import takes_from_workers

NOTHING = {
    "DevicePolicy": "auto",
    "PrivateDevices": False,
    "ProtectHome": "no",
    "ProtectSystem": "full",
    "PrivateTmp": False,
    "MemoryDenyWriteExecute": False,
    "RestrictNamespaces": 2**64 - 1,
    "PrivateNetwork": False,
}


def test_an_open_unit_takes_nothing() -> None:
    assert takes_from_workers(NOTHING) == ()
    assert takes_from_workers({}) == ()


def test_what_it_takes_is_named_as_a_unit_file_has_it() -> None:
    closed = {
        "DevicePolicy": "closed",
        "PrivateDevices": True,
        "ProtectHome": "read-only",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",  # text in newer versions of systemd
        "MemoryDenyWriteExecute": True,
        "RestrictNamespaces": 0,
        "PrivateNetwork": True,
    }
    assert takes_from_workers(closed) == (
        "DevicePolicy=closed",
        "PrivateDevices=yes",
        "ProtectHome=read-only",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "MemoryDenyWriteExecute=yes",
        "RestrictNamespaces=yes",
        "PrivateNetwork=yes",
    )


def test_one_kind_of_namespace_is_enough_to_tell() -> None:
    assert takes_from_workers({**NOTHING, "RestrictNamespaces": 0x7E020000 & ~0x10000000})
