#!/usr/bin/env python3
"""Runs the services of a compose file without a daemon, and uses the cluster that they make.

Usage: compose.py COMPOSE TREE, with the tree of the image's files

Each service is a process in network, mount and host-name namespaces of its own. Its root is the image's tree, its user
the image's, its environment and volumes are those of the file. A bridge joins the networks, and the names of the
services are in the file of hosts. Needs root.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

USER = 10001
IMAGE_ENVIRONMENT = {
    "PATH": "/usr/bin",
    "ANNULET_DATA": "/var/lib/annulet",
    "ANNULET_PB_LISTEN": "0.0.0.0:8087",
    "ANNULET_HTTP_LISTEN": "0.0.0.0:8098",
}
BRIDGE = f"annulet{os.getpid() % 10000}"
NETWORK = "10.231.77"
STARTS_MAX = 60  # seconds


def call(*words, **options):
    return subprocess.run(words, check=True, text=True, **options)


class Service:
    """One service, with its folders."""

    def __init__(self, name, settings, number, tree, work, volumes):
        self.name, self.settings, self.number = name, settings, number
        self.space = f"{BRIDGE}-{name}"
        self.root = work / name
        shutil.copytree(tree, self.root, symlinks=True)
        shutil.copy(work / "hosts", self.root / "etc/hosts")
        (self.root / "proc").mkdir(exist_ok=True)
        self.binds = []
        for volume in settings.get("volumes", []):
            source, target = volume.split(":")[:2]
            self.binds.append((volumes / source, self.root / target.lstrip("/")))
        self.process = None

    def connect(self):
        end = f"v{os.getpid() % 10000}{self.number}"
        call("ip", "netns", "add", self.space)
        call("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", self.space)
        call("ip", "link", "set", end, "master", BRIDGE, "up")
        call("ip", "-n", self.space, "address", "add", f"{NETWORK}.{self.number}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            call("ip", "-n", self.space, "link", "set", link, "up")

    def command(self, words):
        """The command that runs these words in the service."""
        binds = "".join(f"mount --bind '{source}' '{target}'; " for source, target in self.binds)
        binds += f"mount -t proc proc '{self.root}/proc'; "
        inner = f"{binds} exec chroot --userspec={USER}:{USER} --groups= '{self.root}' \"$@\""
        space = ["ip", "netns", "exec", self.space, "unshare", "--mount", "--uts"]
        return [*space, "sh", "-ec", inner, "sh", "/usr/bin/annulet", *words]

    def environment(self):
        given = {key: str(value) for key, value in self.settings.get("environment", {}).items()}
        return {**IMAGE_ENVIRONMENT, **given, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}

    def run(self, words, **options):
        return subprocess.run(self.command(words), env=self.environment(), text=True, capture_output=True, **options)

    def start(self):
        words = self.settings.get("command", ["serve"])
        self.process = subprocess.Popen(self.command(words), env=self.environment(), stdout=subprocess.DEVNULL)

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        subprocess.run(["ip", "netns", "delete", self.space], stderr=subprocess.DEVNULL)


def use(nodes):
    """Waits for the cluster, and reads by one node what another one has written, also while the third is down."""
    first, second, third = nodes
    for node in nodes:
        waited = node.run(["admin", "wait-for-service", "--timeout", str(STARTS_MAX)])
        assert waited.returncode == 0, waited.stderr
        healthy = node.run(["admin", "wait-for-service", "--live", "--timeout", "0"])
        assert healthy.returncode == 0, healthy.stderr
    told = first.run(["admin", "member-status", "--json"])
    members = json.loads(told.stdout)
    assert len(members) == len(nodes) and all(it["reachable"] for it in members), told.stdout
    put = first.run(["kv", "put", "books", "dune", "sand"])
    assert put.returncode == 0, put.stderr
    third.process.send_signal(signal.SIGTERM)
    assert third.process.wait(STARTS_MAX) == 0, "a clean stop by the image's signal"
    got = second.run(["kv", "get", "books", "dune"])
    assert got.stdout.strip() == "sand", got
    assert first.run(["admin", "wait-for-service", "--live", "--timeout", "0"]).returncode == 0
    assert third.run(["admin", "wait-for-service", "--live", "--timeout", "0"]).returncode == 1, "it is unhealthy"


def main():
    compose, tree = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2]
    work = pathlib.Path(tempfile.mkdtemp())
    volumes = work / "volumes"
    for volume in compose["volumes"]:
        (volumes / volume).mkdir(parents=True)
        os.chown(volumes / volume, USER, USER)
    names = list(compose["services"])
    hosts = [f"{NETWORK}.{number} {name}\n" for number, name in enumerate(names, 2)]
    (work / "hosts").write_text("127.0.0.1 localhost\n" + "".join(hosts), encoding="utf-8")
    services = {}
    began = time.monotonic()
    try:
        call("ip", "link", "add", BRIDGE, "type", "bridge")
        call("ip", "link", "set", BRIDGE, "up")
        for number, name in enumerate(names, 2):
            settings = compose["services"][name]
            services[name] = Service(name, settings, number, tree, work, volumes)
            services[name].connect()
        certs = services.pop("certs")
        made = certs.run(certs.settings["command"])
        certs.remove()
        assert made.returncode == 0, made.stderr
        for service in services.values():
            service.start()
        use(list(services.values()))
        print(f"three nodes served after {time.monotonic() - began:.1f} s in all")
    finally:
        for service in services.values():
            service.remove()
        subprocess.run(["ip", "link", "delete", BRIDGE], stderr=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
