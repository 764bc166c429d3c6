"""Network namespaces joined by a bridge, and rules that cut them from each other.

Each has no name: a process that does nothing holds it, and dies with this one however this one ends. The namespace
goes with it, and the cable with the namespace. The bridge is in the namespace that this process was started in.
"""

import contextlib
import ctypes
import os
import signal
import subprocess

from server import Place

NETWORK = "10.77.0"
HUB = f"{NETWORK}.254"

# See prctl(2): a signal for this process when its parent dies.
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def call(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Namespace:
    """One, with an address."""

    def __init__(self, number):
        self.address = f"{NETWORK}.{number}"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], preexec_fn=die_with_parent)
        self.enter = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        ours = f"n{number}"
        call("ip", "link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", str(self.settled()))
        call("ip", "link", "set", ours, "master", "hub", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def settled(self):
        """The holder's number, once it is where it is to be."""
        mine = namespace_of("self")
        while namespace_of(self.holder.pid) == mine:
            if self.holder.poll() is not None:
                raise RuntimeError("a namespace could not be made")
        return self.holder.pid

    def run(self, *command):
        call(*self.enter, *command)

    def place(self):
        return Place(self.address, self.enter, die_with_parent)

    def is_deaf_to(self, others, target=("DROP",)):
        """From now on nothing that comes from these is heard."""
        for other in others:
            rule = ("--append", "INPUT", "--protocol", "tcp", "--source", other.address, "--jump", *target)
            self.run("iptables", "--wait", *rule)

    def hears_all(self):
        self.run("iptables", "--wait", "--flush", "INPUT")

    def close(self):
        self.holder.kill()
        self.holder.wait()


def namespace_of(process):
    return os.readlink(f"/proc/{process}/ns/net")


@contextlib.contextmanager
def namespaces(count):
    """So many of them, numbered from 1, and this process's own address in their midst."""
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", "hub", "type", "bridge")
    call("ip", "address", "add", f"{HUB}/24", "dev", "hub")
    call("ip", "link", "set", "hub", "up")
    made = []
    try:
        for number in range(1, count + 1):
            made.append(Namespace(number))
        yield made
    finally:
        for namespace in made:
            namespace.close()
