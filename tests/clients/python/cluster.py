"""Three started nodes that know each other, and what is asked of them in a test."""

import contextlib
import glob
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request

from server import POLL_SECONDS, PORTS, STOP_SECONDS, Place, Server, is_free
from wire import ServerError, Wire

NODES = 3
RING_SIZE = 16

# A bound on waiting, far beyond what is usual: it only ends what would hang.
PATIENCE_SECONDS = 30

# An object that nobody writes: asked for to learn who can be reached.
NOBODY = (b"nobody", b"wrote this")
PROBE_MILLISECONDS = 5_000


def until(what, is_so):
    """Waits until `is_so()`; what it returns."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (so := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(POLL_SECONDS)
    return so


class Node(Server):
    """One of them."""

    def __init__(self, binary, folder, name, options, place):
        os.makedirs(folder)
        super().__init__(binary, folder, "--name", name, *options, place=place)
        self.name = name

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        """Stops it in its tracks, as a node is whose machine is swapping or migrating."""
        self.signal(signal.SIGSTOP)
        # Its threads stop one after the other, each when it is next interrupted.
        until("the pause", self.is_paused)

    def is_paused(self):
        states = []
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, encoding="ascii") as stat:
                states.append(stat.read().rpartition(")")[2].split()[0])
        return set(states) == {"T"}

    def resume(self):
        if self.is_running():
            self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def paused(self):
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def reaches(self, primaries):
        """Whether it counts so many primaries of a key as up, itself among them."""
        with Wire(self.pb_port, self.host) as wire:
            try:
                wire.get(*NOBODY, pr=primaries, timeout=PROBE_MILLISECONDS)
            except ServerError as error:
                if not re.match(r"{pr_val_unsatisfied,\d,\d}|timeout", str(error)):
                    raise
                return False
        return True

    def stats(self):
        with urllib.request.urlopen(f"http://{self.host}:{self.http_port}/stats", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)


class Cluster:
    """All of them, each a process with a folder of its own."""

    def __init__(self, binary, folder, *options, places=None):
        places = places or [Place() for _ in range(NODES)]
        names = [f"n{number}@{place.host}" for number, place in enumerate(places, 1)]
        certs = os.path.join(folder, "certs")
        command = [binary, "admin", "cert", "--dir", certs]
        for name in names:
            command += ["--name", name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        members = ",".join(f"{name}={place.host}:{place.port()}" for name, place in zip(names, places))
        self.nodes = []
        for number, name in enumerate(names, 1):
            files = [os.path.join(certs, file) for file in ("ca.pem", f"n{number}.pem", f"n{number}.key")]
            own = ["--cluster", members, "--ring-size", str(RING_SIZE), "--shards", "1", *options]
            own += [part for pair in zip(("--peer-ca", "--peer-cert", "--peer-key"), files) for part in pair]
            self.nodes.append(Node(binary, os.path.join(folder, f"n{number}"), name, own, places[number - 1]))

    def __iter__(self):
        return iter(self.nodes)

    def __getitem__(self, number):
        return self.nodes[number]

    def but(self, *nodes):
        return [node for node in self.nodes if node not in nodes]

    def start(self):
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()

    def until_whole(self):
        """Until every node reaches all."""
        for node in self.nodes:
            until(f"{node.name} reaches all", lambda: self.check() or node.reaches(NODES))

    def check(self):
        """No node may have ended by itself."""
        for node in self.nodes:
            if node.process.poll() not in (None, 0, -signal.SIGKILL):
                raise RuntimeError(f"{node.name} ended with {node.process.returncode}:\n{node.log()}")

    def kill(self):
        for node in self.nodes:
            node.kill()


class Dev:
    """`annulet dev 3`: one process that starts and stops three."""

    def __init__(self, binary, folder):
        self.folder = os.path.join(folder, "dev")
        # Each node has ten ports, of which it uses the last three.
        bases = random.sample(PORTS[:-50], 1000)
        self.base = next(base for base in bases if all(is_free(base + port) for port in range(10, 40)))
        self.binary = os.path.abspath(binary)
        self.command = [self.binary, "dev", str(NODES), "--data", self.folder]
        self.command += ["--base-port", str(self.base), "--ring-size", str(RING_SIZE), "--durability", "sync"]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.printed = ""
        while "try it" not in self.printed:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"it ended with {self.process.wait()}:\n{self.printed}")
            self.printed += line

    def ask(self, *words):
        """Asks it to do something with a node."""
        subprocess.run([self.binary, "dev", *words, "--data", self.folder], check=True, stdout=subprocess.DEVNULL)

    def ports(self):
        """Where each node takes clients: protocol buffers, and HTTP."""
        return [(self.base + 10 * number + 7, self.base + 10 * number + 8) for number in range(1, NODES + 1)]

    def pid_files(self):
        return [os.path.join(self.folder, f"n{number}", "pid") for number in range(1, NODES + 1)]

    def stop(self):
        """Asks it to stop, and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        self.printed += self.process.communicate(timeout=STOP_SECONDS)[0]
        return self.process.returncode

    def kill(self):
        """Ends it and its nodes, if they run."""
        for path in self.pid_files():
            with contextlib.suppress(OSError, ValueError):
                with open(path, encoding="ascii") as file:
                    os.kill(int(file.read()), signal.SIGKILL)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process is not None:
            self.process.stdout.close()
