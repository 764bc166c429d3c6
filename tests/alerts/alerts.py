"""Real faults, and the alerts that they must fire: see README.md."""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from nodes import MIB, found, free_ports, make_certificate, until
from scraper import RANGE, RULES, Scraper, dashboard_expressions

# The library through which a program reads another clock.
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

# Less than the parts of a node need together.
LITTLE_MEMORY = "64MiB"

# Groups have leaders.
LED = 'sum(annulet_consistent_groups{state="led"}) > 0'

# Length of a pause: a death is noticed in 1.5 s, and elections follow by rank.
PAUSE_SECONDS = 5

# Alerts without a fault here: they are tested on made-up input alone. Trees and groups are repaired within seconds, the
# plan keeps memory below its limit, hints are lost by errors of a disk, and the nodes have no users.
MADE_UP = {
    "AnnuletAntiEntropyLags",
    "AnnuletGroupsDamaged",
    "AnnuletGroupsNotRefilled",
    "AnnuletHintsLost",
    "AnnuletMemoryPressure",
    "AnnuletRevocationListOld",
    "AnnuletUserLimitReached",
}

# Lines of a log without a reader: more than a pipe and the queue hold.
LINES = 20_000


class Bench:
    """The nodes, the scraper, and what was seen to fire."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.nodes = found(binary, folder)
        self.scraper = Scraper(folder, free_ports(1)[0], [node.instance for node in self.nodes])
        self.fired = set()
        self.scraper.until("Prometheus scrapes all", lambda: len(self.scraper.query("up == 1")) == len(self.nodes))

    def fires(self, alert, node=None):
        """Waits until an alert fires, at one node or any."""
        took = self.scraper.until(f"{alert} fires", lambda: self._fires(alert, node))
        self.fired.add(alert)
        print(f"  {alert} fires after {took:.1f} s", flush=True)

    def clears(self, *alerts):
        for alert in alerts:
            took = self.scraper.until(f"{alert} clears", lambda alert=alert: not self._fires(alert, None))
            print(f"  {alert} clears after {took:.1f} s", flush=True)

    def _fires(self, alert, node):
        instances = [instance for name, instance in self.scraper.firing() if name == alert]
        return bool(instances) if node is None else node.instance in instances

    def is_whole(self):
        until("all are ready", lambda: all(node.is_ready() for node in self.nodes))
        reached = "sum(annulet_cluster_members_reached) == 9"
        self.scraper.until("all reach all", lambda: self.scraper.query(reached))

    def stop(self):
        self.scraper.stop()
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                node.resume()
            node.kill()


@contextlib.contextmanager
def asking(*requests):
    """Makes requests, each in a thread of its own, over and over."""
    over = threading.Event()

    def ask(request):
        while not over.is_set():
            request()
            time.sleep(0.01)

    threads = [threading.Thread(target=ask, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def killed(bench):
    """A node dies, and requests that need it fail."""
    one, _, three = bench.nodes
    three.kill()
    with asking(lambda: one.ask("GET", "/buckets/b/keys/k?pr=3")):
        bench.fires("AnnuletNodeDown", three)
        bench.fires("AnnuletMemberNotReached", one)
        bench.fires("AnnuletErrors", one)
    three.start()
    bench.clears("AnnuletNodeDown", "AnnuletMemberNotReached", "AnnuletErrors")


def consistent_reads(node):
    """Reads of a consistent type, which is made if it is missing."""
    props = b'{"props":{"consistent":true,"n_val":3}}'
    node.ask("PUT", "/admin/bucket-types/accounts", props)
    is_active = (200, 204, 409)
    until("the type is active", lambda: node.ask("POST", "/admin/bucket-types/accounts/activate")[0] in is_active)
    return [lambda key=key: node.ask("GET", f"/types/accounts/buckets/b/keys/{key}") for key in range(40)]


def no_majority(bench):
    """Two of three nodes die; requests on a consistent type wait for a leader."""
    one, two, three = bench.nodes
    with asking(*consistent_reads(one)):
        bench.scraper.until("groups have leaders", lambda: bench.scraper.query(LED))
        two.kill()
        three.kill()
        bench.fires("AnnuletNoMajority", one)
        bench.fires("AnnuletNotReady", one)
        bench.fires("AnnuletGroupsWithoutLeader", one)
        bench.fires("AnnuletSlow")
        two.start()
        three.start()
        bench.clears("AnnuletNoMajority", "AnnuletNotReady", "AnnuletGroupsWithoutLeader", "AnnuletSlow")


def elections(bench):
    """Nodes are paused in turn, so groups change their leaders."""
    with asking(*consistent_reads(bench.nodes[0])):
        # The first leaders of new groups are no changes.
        bench.scraper.until("groups have leaders", lambda: bench.scraper.query(LED))
        elected = f"sum(increase(annulet_consistent_elections_total[{RANGE}])) > 0"
        bench.scraper.until("no more elections", lambda: not bench.scraper.query(elected))
        bench.clears("AnnuletManyElections")
        over = threading.Event()

        def pause_in_turn():
            while not over.is_set():
                for node in bench.nodes:
                    node.pause()
                    time.sleep(PAUSE_SECONDS)
                    node.resume()
                    time.sleep(2)

        thread = threading.Thread(target=pause_in_turn)
        thread.start()
        try:
            bench.fires("AnnuletManyElections")
        finally:
            over.set()
            thread.join()
    bench.clears("AnnuletManyElections")


def paused(bench):
    """A node is paused, as one whose machine swaps: folds wait for it, and more are refused."""
    one, two, _ = bench.nodes
    two.pause()

    def fold():
        one.ask("GET", "/objectstats/types/default/buckets/b")

    with asking(*[fold] * 30):
        bench.fires("AnnuletNodeDown", two)
        bench.fires("AnnuletOverload", one)
    two.resume()
    bench.clears("AnnuletNodeDown", "AnnuletOverload")


def full_disk(bench):
    """The disk fills up, by a file of another program."""
    one = bench.nodes[0]
    with one.full_disk():
        bench.fires("AnnuletDiskFillsUp", one)
        bench.fires("AnnuletStoreRefusesWrites", one)
    bench.clears("AnnuletDiskFillsUp", "AnnuletStoreRefusesWrites")


def refused_hints(bench):
    """A node with a full disk comes back: it takes none of the writes that others keep for it."""
    one, _, three = bench.nodes
    three.kill()
    until("the death is noticed", lambda: one.stats()["cluster_members_reached"] == 2)
    for key in range(20):
        assert one.ask("PUT", f"/buckets/hinted/keys/{key}", b"value", "text/plain")[0] == 204
    with three.full_disk():
        three.start()
        bench.fires("AnnuletHintsStuck")
    bench.clears("AnnuletHintsStuck")


def clock_ahead(bench):
    """The clock of a node is an hour ahead."""
    one, _, three = bench.nodes
    three.stop()
    three.start(environment={"LD_PRELOAD": FAKETIME, "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    bench.is_whole()
    with asking(lambda: three.ask("PUT", "/buckets/ahead/keys/k", b"value", "text/plain")):
        bench.fires("AnnuletClockAhead", one)
    three.stop()
    three.start()
    bench.clears("AnnuletClockAhead")


def little_memory(bench):
    """A node may use less memory than it needs, and many clients are slow to send their values."""
    three = bench.nodes[2]
    three.stop()
    three.start(memory=LITTLE_MEMORY)
    bench.is_whole()
    put = lambda: three.ask("PUT", "/buckets/b/keys/k", bytes(MIB), "text/plain")
    with three.unfinished_requests(MIB), asking(put):
        bench.fires("AnnuletMemoryRefused", three)
    three.stop()
    three.start()
    bench.clears("AnnuletMemoryRefused")


def flipped_byte(bench):
    """A byte of a stored value flips. Other replicas heal it, unless there are none."""
    one = bench.nodes[0]
    for bucket, n_val in (("single", 1), ("triple", 3)):
        props = b'{"props":{"n_val":%d}}' % n_val
        assert one.ask("PUT", f"/buckets/{bucket}/props", props)[0] == 204
        for key in range(30):
            value = f"{bucket}-{key:04}-".encode() * 100
            one.ask("PUT", f"/buckets/{bucket}/keys/{key}", value, "text/plain")
    # The scrub leaves out the segment that is written, and those whose records are not all in tables: a start begins
    # another one, and a stop moves all records into tables.
    for _ in range(2):
        one.stop()
        one.start()
        bench.is_whole()
        one.ask("PUT", "/buckets/triple/keys/last", b"last", "text/plain")
    assert flip(one.data, b"triple-"), "a value of the bucket is on the disk"
    bench.fires("AnnuletDamage", one)
    flip(one.data, b"single-")
    bench.fires("AnnuletNotHealed", one)
    for bucket in ("single", "triple"):
        for key in range(30):
            one.ask("PUT", f"/buckets/{bucket}/keys/{key}", b"new", "text/plain")
    until("the damage is compacted", lambda: one.ask("POST", "/admin/compact", b"{}")[0] // 100 == 2)
    bench.clears("AnnuletDamage", "AnnuletNotHealed")


def flip(folder, text):
    """Flips a byte of the first file with this text."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                at = file.read().find(text)
            if at >= 0:
                with open(path, "r+b") as file:
                    file.seek(at + 2)
                    file.write(b"\xff")
                return True
    return False


def old_certificate(bench):
    """A node has a certificate that ends within a week."""
    three = bench.nodes[2]
    for days in (7, 365):
        three.stop()
        for end in ("pem", "key"):
            os.remove(os.path.join(bench.folder, "certs", f"n3.{end}"))
        make_certificate(bench.binary, bench.folder, three.name, days)
        three.start()
        if days == 7:
            bench.fires("AnnuletCertificateEnds", three)
    bench.is_whole()
    bench.clears("AnnuletCertificateEnds")


def stuck_log(bench):
    """The reader of a node's log takes nothing any more."""
    three = bench.nodes[2]
    three.stop()
    reader, writer = os.pipe()
    # Each unknown variable is a line of the log, and some 8,000 lines wait before one is dropped.
    three.start(stderr=writer, environment={f"ANNULET_NONE_{at}": "1" for at in range(LINES)})
    os.close(writer)
    bench.fires("AnnuletLogLinesDropped", three)
    three.kill()
    os.close(reader)
    three.start()
    bench.clears("AnnuletLogLinesDropped")


FAULTS = [
    old_certificate,
    killed,
    paused,
    full_disk,
    refused_hints,
    flipped_byte,
    stuck_log,
    clock_ahead,
    little_memory,
    no_majority,
    elections,
]


def check_expressions(bench):
    """Each expression of the dashboard gives data."""
    empty = [expression for expression in dashboard_expressions() if not bench.scraper.query(expression)]
    assert not empty, f"no data: {empty}"
    print(f"  {len(list(dashboard_expressions()))} expressions of the dashboard give data")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--only", action="append", choices=[fault.__name__ for fault in FAULTS])
    args = parser.parse_args()
    folder = tempfile.mkdtemp()
    bench = None
    try:
        bench = Bench(os.path.abspath(args.binary), folder)
        for fault in FAULTS:
            if args.only and fault.__name__ not in args.only:
                continue
            print(f"{fault.__name__}: {fault.__doc__}", flush=True)
            fault(bench)
            bench.is_whole()
        if not args.only:
            print("check_expressions")
            check_expressions(bench)
            with open(RULES, encoding="utf-8") as rules:
                missing = set(re.findall(r"alert: (\w+)", rules.read())) - bench.fired - MADE_UP
            assert not missing, f"never fired: {sorted(missing)}"
        print(f"{len(bench.fired)} alerts fired and cleared")
    except AssertionError as error:
        for node in bench.nodes if bench else ():
            print(f"last lines of the log of {node.name}:", *node.last_lines(), sep="\n  ")
        sys.exit(f"FAILED: {error}")
    finally:
        if bench:
            bench.stop()
        for node in bench.nodes if bench else ():
            subprocess.run(["umount", node.data], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
