"""Three real nodes of one cluster, each with a folder, ports and certificates of its own."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from slow_link import SlowLink

# A bound on waiting, far beyond what is usual: it only ends what would hang.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.1

# So small that a test can fill it, and so large that three segments fit.
DISK = "160m"
RESERVE = "8MiB"
MIB = 1 << 20


class Node:
    """One node, which may be started and stopped several times. `options` are those beside folder, name and ports."""

    def __init__(self, binary, folder, number, ports, options):
        self.binary, self.folder, self.number = binary, folder, number
        self.name = f"n{number}@127.0.0.1"
        self.pb, self.http = ports
        self.options = options
        self.data = os.path.join(folder, f"n{number}")
        self.address = f"127.0.0.1:{self.http}"
        # The name of the node in alerts.
        self.instance = self.address
        self.log = os.path.join(folder, f"n{number}.log")
        self.process = None
        os.makedirs(self.data)

    def start(self, stderr=None, environment=None, memory="256MiB", shards=1):
        command = [self.binary, "serve", "--data", self.data, "--name", self.name, "--shards", str(shards)]
        command += ["--pb-listen", f"127.0.0.1:{self.pb}", "--http-listen", self.address, *self.options]
        command += ["--disk-reserve", RESERVE, "--scrub-period", "4s", "--memory", memory]
        own = {name: value for name, value in os.environ.items() if not name.startswith("ANNULET_")}
        log = open(self.log, "ab")
        self.process = subprocess.Popen(
            command, env={**own, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=stderr or log
        )

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)

    def fail_writes(self):
        """Writes to files fail from now on, for another reason than a full disk: by a limit on their sizes."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, 0))

    def lose_data(self):
        """The data of a stopped node is lost, as that of a replaced disk."""
        for entry in os.scandir(self.data):
            shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)

    @contextlib.contextmanager
    def full_disk(self, free=0):
        """A file of another program leaves so many bytes free meanwhile."""
        path = os.path.join(self.data, "of-another-program")
        room = os.statvfs(self.data)
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - free)
        try:
            yield
        finally:
            os.remove(path)

    @contextlib.contextmanager
    def unfinished_requests(self, length, count=64):
        """Clients have sent the first halves of their values meanwhile, unless the node has refused them."""
        head = f"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: text/plain\r\n"
        half = f"{head}Content-Length: {length}\r\n\r\n".encode() + bytes(length // 2)
        with contextlib.ExitStack() as connections:
            for _ in range(count):
                connection = connections.enter_context(socket.create_connection(("127.0.0.1", self.http)))
                with contextlib.suppress(OSError):
                    connection.sendall(half)
            yield

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, method, path, body=None, content_type="application/json", timeout=20, headers=()):
        """The status and the body of an answer; status 0 if there is none."""
        url = f"http://{self.address}{path}"
        headers = {"Content-Type": content_type, **dict(headers)}
        request = urllib.request.Request(url, method=method, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def last_lines(self, count=5):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [line.rstrip() for line in log.readlines()[-count:]]

    def is_ready(self):
        return self.ask("GET", "/health/ready")[0] == 200

    def stats(self):
        return json.loads(self.ask("GET", "/stats")[1])


def until(what, is_so):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(POLL_SECONDS)


def free_ports(count):
    """Ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for it in sockets:
        it.bind(("127.0.0.1", 0))
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


def make_certificate(binary, folder, name, days):
    certs = os.path.join(folder, "certs")
    command = [binary, "admin", "cert", "--dir", certs, "--name", name, "--days", str(days)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def found(binary, folder):
    """Starts three nodes, each with a small disk of its own, which nobody else fills, and the link to the first one."""
    ports = [free_ports(3) for _ in range(3)]
    listen = free_ports(1)[0]
    slow_link = SlowLink(ports[0][2], listen)
    members = ",".join(f"n{number}@127.0.0.1=127.0.0.1:{peers}" for number, (_, _, peers) in enumerate(ports, 1))
    certs = os.path.join(folder, "certs")
    nodes = []
    for number, (pb, http, _) in enumerate(ports, 1):
        options = ["--cluster", members, "--ring-size", "64", "--peer-ca", f"{certs}/ca.pem", "--strong-reads", "lease"]
        options += ["--peer-cert", f"{certs}/n{number}.pem", "--peer-key", f"{certs}/n{number}.key"]
        if number == 1:
            options += ["--peer-listen", f"127.0.0.1:{listen}", "--peer-address", f"127.0.0.1:{ports[0][2]}"]
        nodes.append(Node(binary, folder, number, (pb, http), options))
    for node in nodes:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", node.data], check=True)
        make_certificate(binary, folder, node.name, 365)
        node.start()
    until("the nodes are ready", lambda: all(node.is_ready() for node in nodes))
    return nodes, slow_link
