"""The manifests of config/kubernetes, and daemons that run the very configuration in them.

A kubelet is not here; what it does to a pod's files and processes is done by hand: volumes with
the modes and owners that it gives them, a ConfigMap that changes by one rename of a link, probes
that are a connection and a deadline each, a container with the capabilities of its manifest alone.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml

from support.crew import SERVING_STATUS, health_stub
from support.daemon import Daemon, free_port

MANIFESTS = Path(__file__).resolve().parents[2] / "config" / "kubernetes"
SIDECAR = MANIFESTS / "sidecar.yaml"
DAEMONSET = MANIFESTS / "daemonset.yaml"
CONFIG_FILE = "stepwarden.yaml"
SOMEBODY = 65534
"""Who owns volumes here that are root's in a pod: not the daemon's own user."""

Section = dict[str, Any]


def documents(path: Path) -> list[Section]:
    """Every object of a manifest."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def of_kind(path: Path, kind: str) -> Section:
    """The one object of that kind."""
    (found,) = (document for document in documents(path) if document["kind"] == kind)
    return found


def config_text(path: Path) -> str:
    """The configuration file in the ConfigMap."""
    text: str = of_kind(path, "ConfigMap")["data"][CONFIG_FILE]
    return text


def pod_spec(path: Path) -> Section:
    """The pod that stepwarden runs in."""
    kind = "Deployment" if path == SIDECAR else "DaemonSet"
    spec: Section = of_kind(path, kind)["spec"]["template"]["spec"]
    return spec


def container(spec: Section, name: str) -> Section:
    """A container of a pod, a sidecar or not."""
    everybody = [*spec.get("initContainers", []), *spec["containers"]]
    (found,) = (one for one in everybody if one["name"] == name)
    return found  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Probe:
    """A gRPC probe of a manifest, asked as a kubelet asks: a new connection each time."""

    service: str
    timeout: float

    def ask(self, address: str) -> str:
        """What the service says; the name of the error where it says nothing."""
        with health_stub(address) as asked:
            try:
                return SERVING_STATUS[asked(self.service, timeout=self.timeout)[0]]
            except grpc.RpcError as error:
                return str(error.code().name)


def probe(path: Path, kind: str) -> Probe:
    """A probe of stepwarden's container, such as `livenessProbe`."""
    section = container(pod_spec(path), "stepwarden")[kind]
    return Probe(section["grpc"]["service"], section["timeoutSeconds"])


def setpriv(*capabilities: str) -> list[str]:
    """Run a program with these capabilities and no more of them, over any exec."""
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    return ["setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}", f"--ambient-caps={kept}"]


class ConfigMap:
    """A mounted ConfigMap: the file is a link into `..data`, which is a link to a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / CONFIG_FILE).symlink_to(Path("..data") / CONFIG_FILE)

    def update(self, text: str) -> None:
        """One rename of `..data`, then the former directory goes."""
        data = self.directory / "..data"
        former = data.resolve() if data.exists() else None
        fresh = self.directory / f"..{time.monotonic_ns()}"
        fresh.mkdir()
        (fresh / CONFIG_FILE).write_text(text, encoding="utf-8")
        (self.directory / "..data_tmp").symlink_to(fresh.name)
        (self.directory / "..data_tmp").rename(data)
        if former is not None:
            shutil.rmtree(former)


class StepwardenContainer(Daemon):
    """stepwarden's container of a manifest, with its volumes in one directory.

    `capabilities`: what the manifest adds. `volume_mode`: how the kubelet leaves an emptyDir (02777
    where the pod has an fsGroup). `user`: the engine's; None: ours.
    """

    def __init__(
        self,
        manifest: Path,
        *,
        capabilities: Sequence[str] = (),
        volume_mode: int = 0o777,
        user: int | None = None,
    ) -> None:
        self.manifest = manifest
        self._capabilities = capabilities
        self._engine_user = os.geteuid() if user is None else user
        self._volume_mode = volume_mode
        self._metrics_address = f"127.0.0.1:{free_port()}"
        self.volumes: dict[str, Path] = {}
        self._config_map: ConfigMap | None = None
        super().__init__("")

    def write_config(self, body: str) -> None:
        """The manifest's own file, mapped; `body` is what the ConfigMap is changed to."""
        if self._config_map is None:
            self._make_volumes()
            self._config_map = ConfigMap(self.directory / "etc")
            self.config = self._config_map.directory / CONFIG_FILE
        self._config_map.update(body or self.text())

    def text(self) -> str:
        """The configuration of the manifest for this machine: its paths, ports, user, and haste."""
        text = config_text(self.manifest)
        for place, volume in self.volumes.items():
            text = text.replace(place, str(volume))
        mapped = {
            '"0.0.0.0:50051"': f'"{self.health_address}"',
            '"0.0.0.0:9464"': f'"{self._metrics_address}"',
            "window: 30s": "window: 1s",
            "startup: {budget: 20m}": "startup: {budget: 20m, first_step: 1s}",
            "rows: {1: 5s,": "rows: {1: 1s,",
            "backend: gpu": "backend: gpu\n    step: {base: 1s}\n    retry: {window: 1s}",
        }
        for written, here in mapped.items():
            text = text.replace(written, here)
        return re.sub(r"expect_user: \d+", f'expect_user: "{self._engine_user}"', text)

    def command(self) -> list[str]:
        """Its capabilities are those of the manifest."""
        if os.geteuid() != 0:
            return super().command()
        return [*setpriv(*self._capabilities), "--no-new-privs", "--", *super().command()]

    @property
    def invitation(self) -> Path:
        """What STEPWARDEN_ATTACH of the engine's container stands for."""
        kind = "Pod" if self.manifest == DAEMONSET else None
        spec = of_kind(self.manifest, kind)["spec"] if kind else pod_spec(self.manifest)
        place = environment(container(spec, "engine"))["STEPWARDEN_ATTACH"]
        mount = next(known for known in self.volumes if place.startswith(known + "/"))
        return self.volumes[mount] / Path(place).relative_to(mount)

    def _make_volumes(self) -> None:
        spec = pod_spec(self.manifest)
        kinds = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container(spec, "stepwarden")["volumeMounts"]:
            volume = kinds[mount["name"]]
            if "configMap" in volume:
                continue
            place = self.directory / mount["name"]
            place.mkdir()
            if "emptyDir" in volume:
                place.chmod(self._volume_mode)
                if os.geteuid() == 0:
                    os.chown(place, SOMEBODY, os.getegid())
            self.volumes[mount["mountPath"]] = place


def environment(one: Section) -> dict[str, str]:
    """The variables of a container."""
    return {entry["name"]: entry["value"] for entry in one.get("env", [])}
