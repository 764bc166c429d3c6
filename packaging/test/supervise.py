#!/usr/bin/env python3
"""Runs the node of an installed package as its unit says, as far as that needs no systemd.

Usage: supervise.py CHROOT NOTICES

The node runs in the chroot as its user, with a socket for its notices. Each notice is a line of the file NOTICES.
SIGTERM stops the node, and this program ends as the node does.
"""
import configparser
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import threading

UNIT = "lib/systemd/system/annulet.service"


def unit(root):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(os.path.join(root, UNIT))
    return parser["Service"]


def user(root, name):
    with open(os.path.join(root, "etc/passwd"), encoding="utf-8") as file:
        fields = next(line.split(":") for line in file if line.startswith(f"{name}:"))
    return int(fields[2]), int(fields[3])


def main():
    root, notices = sys.argv[1:]
    service = unit(root)
    uid, gid = user(root, service["User"])
    path = "/run/notify"
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    taken.bind(root + path)
    os.chmod(root + path, 0o666)
    # A container may have less than the unit gives.
    files = min(int(service["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])

    def confine():
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        os.chroot(root)
        os.chdir(service["WorkingDirectory"])
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)

    environment = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": f"{int(service['WatchdogSec']) * 1_000_000}"}
    command = shlex.split(service["ExecStart"])
    node = subprocess.Popen(command, preexec_fn=confine, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: node.terminate())

    def note():
        with open(notices, "w", encoding="utf-8", buffering=1) as file:
            while True:
                file.write(taken.recv(4096).decode() + "\n")

    threading.Thread(target=note, daemon=True).start()
    sys.exit(node.wait())


if __name__ == "__main__":
    main()
