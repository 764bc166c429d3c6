"""A started node: its process, its ports, its data folder."""

import itertools
import os
import random
import signal
import socket
import subprocess
import time

from wire import Wire

HOST = "127.0.0.1"

# Bounds on waiting, far beyond what is usual: they only end what would hang.
READY_SECONDS = 60
STOP_SECONDS = 60
POLL_SECONDS = 0.02

FIRST_PORT = 8087


# Below those that the system gives to whoever connects: one of these stays free while its server is down.
PORTS = range(10_000, 32_000)


_given = set()


def free_port():
    """A port that nobody listens on, and that was not given out before."""
    port = random.choice(PORTS)
    while port in _given or not is_free(port):
        port = random.choice(PORTS)
    _given.add(port)
    return port


def is_free(port):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


class Place:
    """Where a server runs: an address, the command that runs a program there, what its process does first."""

    def __init__(self, host=HOST, enter=(), prepare=None):
        self.host, self.enter, self.prepare = host, enter, prepare
        self.ports = None if host == HOST else itertools.count(FIRST_PORT)

    def port(self):
        """One that is free: any on this machine, the next one where nobody else is."""
        return next(self.ports) if self.ports else free_port()


class Server:
    """One `annulet serve`, which may be started and stopped several times on the same folder and ports."""

    def __init__(self, binary, folder, *options, place=None):
        self.binary = os.path.abspath(binary)
        self.options = options
        self.folder = folder
        self.place = place or Place()
        self.host = self.place.host
        self.pb_port, self.http_port = self.place.port(), self.place.port()
        self.log_path = os.path.join(folder, "log.txt")
        self.process = None

    def start(self):
        self.launch()
        self.wait_until_ready()

    def launch(self):
        """Starts the process, which may not answer yet."""
        command = [*self.place.enter, self.binary, "serve", "--data", os.path.join(self.folder, "data")]
        command += ["--pb-listen", f"{self.host}:{self.pb_port}", "--http-listen", f"{self.host}:{self.http_port}"]
        if self.host != HOST:
            # A network of the test's own.
            command += ["--insecure"]
        command += ["--durability", "sync", *self.options]
        # Neither the caller's environment nor a file in the working folder may configure it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANNULET_")}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=self.place.prepare,
            )

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while not self._answers_ping():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server answers no ping after {READY_SECONDS} s:\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def _answers_ping(self):
        try:
            with Wire(self.pb_port, self.host) as wire:
                return wire.ping()
        except OSError:
            return False

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Asks it to stop, as an operator would, and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the server runs {STOP_SECONDS} s after SIGTERM:\n{self.log()}") from None

    def kill(self):
        """Ends it without notice, if it runs."""
        if self.is_running():
            self.process.kill()
            self.process.wait()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()
