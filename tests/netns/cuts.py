"""Cuts between three nodes under load; what was acknowledged is there afterwards, and how the clients fared.

    run BINARY [--seconds N] [--only SHAPE] [--seed N] [--consistent]

For each shape of cut: a load on all nodes, first without a cut, then with it, then healed until all nodes reach each
other again. Then the load ends, and every key and set is read through every node. A shape fails if something that
was acknowledged is not there, something deleted is, a request outlived its deadline, or the nodes do not find each
other again.

With `--consistent` the load is of clients that contend for few keys of a consistent bucket type. Then a shape fails if
there is no one order of all requests, as `annulet bench check` finds.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "clients", "python"))

import shim  # noqa: E402, F401  (before anything that imports the client)

from case import connect  # noqa: E402
from cluster import NODES, Cluster  # noqa: E402
from history import History  # noqa: E402
from load import Load  # noqa: E402
from namespaces import namespaces  # noqa: E402
from test_consistent import activate  # noqa: E402

WRITERS_PER_NODE = 2
# Between two requests of a writer: what is written is also read three times in the end.
PAUSE_SECONDS = 0.02

HEALTHY_SECONDS = 1
# After all reach each other: for those who have waited for a deadline.
AFTERWARDS_SECONDS = 1
PATIENCE_SECONDS = 60
# Acknowledged before a cut and after its heal, of a consistent bucket type.
REQUESTS_AROUND = 200
POLL_SECONDS = 0.05

FLAP_SECONDS = (1, 5)

# What is wanted: of requests on the side that has a majority, and from the heal until all is as before.
SUCCESS_WANTED = 0.99
RECOVERY_WANTED_SECONDS = 5

RESET = ("REJECT", "--reject-with", "tcp-reset")


class Shape:
    """A cut: who is on the smaller side, and rules that make it."""

    def __init__(self, name, minority, cut, flaps=False):
        self.name, self.minority, self.cut, self.flaps = name, minority, cut, flaps


def apart(one, others, target=("DROP",)):
    one.is_deaf_to(others, target)
    for other in others:
        other.is_deaf_to([one], target)


def shapes(spaces):
    one, two, three = spaces

    def cannot_be_heard():
        one.is_deaf_to([two])
        three.is_deaf_to([two])

    return [
        Shape("symmetric", {2}, lambda: apart(three, [one, two])),
        Shape("deaf", {0}, lambda: one.is_deaf_to([two, three])),
        Shape("mute", {1}, cannot_be_heard),
        Shape("bridge", set(), lambda: apart(one, [two])),
        Shape("flapping", {2}, lambda: apart(three, [one, two]), flaps=True),
        Shape("reset", {0}, lambda: apart(one, [two, three], RESET)),
        Shape("all apart", {0, 1, 2}, lambda: (apart(one, [two, three]), apart(two, [three]))),
    ]


class Run:
    """One shape."""

    def __init__(self, shape, spaces, cluster, seconds, rng):
        self.shape, self.spaces, self.cluster, self.seconds, self.rng = shape, spaces, cluster, seconds, rng
        self.problems = []

    def heal(self):
        for space in self.spaces:
            space.hears_all()

    def play(self):
        """Cuts and heals; when each happened."""
        began = time.monotonic()
        until = began + self.seconds
        try:
            if not self.shape.flaps:
                self.shape.cut()
                time.sleep(self.seconds)
            while self.shape.flaps and time.monotonic() < until:
                for act in (self.shape.cut, self.heal):
                    act()
                    time.sleep(max(0, min(self.rng.uniform(*FLAP_SECONDS), until - time.monotonic())))
        finally:
            self.heal()
        return began, time.monotonic()

    def whole_after(self, healed):
        """Seconds from the heal until all nodes reach each other."""
        while not all(node.reaches(NODES) for node in self.cluster):
            self.cluster.check()
            if time.monotonic() > healed + PATIENCE_SECONDS:
                self.problems.append(f"the nodes do not reach each other {PATIENCE_SECONDS} s after the heal")
                break
            time.sleep(POLL_SECONDS)
        return time.monotonic() - healed

    def run(self):
        name = self.shape.name.replace(" ", "-")
        clients = [connect(node) for node in self.cluster]
        clients[0].bucket(f"{name}-sets").set_properties({"allow_mult": True})
        lists = [[node] for node in self.cluster for _ in range(WRITERS_PER_NODE)]
        load = Load(f"{name}-plain", f"{name}-sets", lists, PAUSE_SECONDS)
        try:
            time.sleep(HEALTHY_SECONDS)
            cut, healed = self.play()
            recovered = self.whole_after(healed)
            time.sleep(AFTERWARDS_SECONDS)
        finally:
            try:
                load.stop()
            except AssertionError as error:
                self.problems.append(str(error))
        self.cluster.check()
        home = self.converged_after(load, clients, healed)
        self.verify(load, clients)
        for client in clients:
            client.close()
        self.report(load, cut, healed, recovered, home)
        return not self.problems

    def converged_after(self, load, clients, healed):
        """Seconds from the heal until every node has everything itself; listings are of what a node has."""
        while True:
            wrong = [load.wrong_keys(client.bucket(load.plain).get_keys()) for client in clients]
            if not any(wrong):
                return time.monotonic() - healed
            if time.monotonic() > healed + PATIENCE_SECONDS:
                for node, parts in zip(self.cluster, wrong):
                    for what, keys in parts.items():
                        self.problems.append(f"{node.name}: {len(keys)} keys {what}, as {sorted(keys)[:3]}")
                return None
            time.sleep(POLL_SECONDS)

    def verify(self, load, clients):
        """Reads everything through every node."""

        def read(node, client):
            wrong = load.wrong_values(client, load.keys())
            for key, what in list(wrong.items())[:3]:
                self.problems.append(f"{node.name}: {len(wrong)} keys are not read as they must be, as {key}: {what}")
            for what, elements in load.wrong_elements(client).items():
                self.problems.append(f"{node.name}: {len(elements)} elements {what}, as {sorted(elements)[:3]}")

        threads = [threading.Thread(target=read, args=pair) for pair in zip(self.cluster, clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def report(self, load, cut, healed, recovered, home):
        kept, gone, added = (len(load.all(what)) for what in ("kept", "gone", "added"))
        print(f"{self.shape.name}: {kept} keys, {gone} deleted, {added} elements of sets")
        sides = (("with the majority", False), ("cut off", True))
        for side, in_minority in sides:
            attempts = [
                attempt
                for number, writer in enumerate(load.writers)
                if (number // WRITERS_PER_NODE in self.shape.minority) == in_minority
                for attempt in writer.attempts
                if attempt.begin + attempt.seconds >= cut and attempt.begin < healed
            ]
            if attempts:
                line, rate = summary(attempts)
                marked = "" if in_minority or rate >= SUCCESS_WANTED else f"   WANTED {SUCCESS_WANTED:.0%}"
                print(f"  {side:18} {line}{marked}")
        marked = "" if recovered <= RECOVERY_WANTED_SECONDS else f"   WANTED {RECOVERY_WANTED_SECONDS} s"
        home = "never" if home is None else f"{home:.1f} s"
        reach = f"all reach each other in {recovered:.1f} s"
        print(f"  {'after the heal':18} {reach}, everybody has everything in {home}{marked}")
        for problem in self.problems:
            print(f"  FAILED: {problem}")
        sys.stdout.flush()


class ConsistentRun(Run):
    """One shape, under clients of a consistent bucket type."""

    TYPE = "consistent"

    def run(self):
        history = History(self.TYPE, self.shape.name.replace(" ", "-"), list(self.cluster), WRITERS_PER_NODE)
        try:
            history.wait(REQUESTS_AROUND)
            cut, healed = (int((at - history.begin / 1e9) * 1e9) for at in self.play())
            recovered = self.whole_after(time.monotonic())
            history.wait(REQUESTS_AROUND)
        finally:
            history.stop()
        self.cluster.check()
        with tempfile.TemporaryDirectory(prefix="annulet-netns-") as folder:
            text, is_linearizable = history.check(self.cluster.nodes[0].binary, folder)
        if not is_linearizable:
            self.problems.append(text)
        self.report_sides(history, cut, healed, recovered)
        return not self.problems

    def report_sides(self, history, cut, healed, recovered):
        print(f"{self.shape.name}: {sum(len(contender.lines) for contender in history.contenders)} requests")
        for side, in_minority in (("with the majority", False), ("cut off", True)):
            lines = [
                line
                for number, contender in enumerate(history.contenders)
                if (number // WRITERS_PER_NODE in self.shape.minority) == in_minority
                for line in contender.lines
                if line["return"] >= cut and line["call"] < healed
            ]
            if lines:
                results = [line["result"] for line in lines]
                counts = ", ".join(f"{results.count(result)} {result}" for result in sorted(set(results)))
                longest = max(line["return"] - line["call"] for line in lines) / 1e9
                print(f"  {side:18} {counts}; longest {longest:.1f} s")
        marked = "" if recovered <= RECOVERY_WANTED_SECONDS else f"   WANTED {RECOVERY_WANTED_SECONDS} s"
        print(f"  {'after the heal':18} all reach each other in {recovered:.1f} s{marked}")
        for problem in self.problems:
            print(f"  FAILED: {problem}")
        sys.stdout.flush()


def summary(attempts):
    errors = {}
    for attempt in attempts:
        if attempt.error:
            errors[attempt.error] = errors.get(attempt.error, 0) + 1
    seconds = sorted(attempt.seconds for attempt in attempts)
    rate = 1 - sum(errors.values()) / len(attempts)
    middle, high = (seconds[int(len(seconds) * part)] * 1000 for part in (0.5, 0.99))
    line = f"{len(attempts)} requests, {rate:.2%} succeeded, "
    line += f"p50 {middle:.0f} ms, p99 {high:.0f} ms, longest {seconds[-1]:.1f} s"
    most = sorted(errors.items(), key=lambda item: -item[1])[:3]
    return line + "".join(f"; {count} x {error}" for error, count in most), rate


def main():
    parser = argparse.ArgumentParser(prog="run")
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=60, help="of all cuts together")
    parser.add_argument("--only", help="the shape of this name")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the flapping")
    parser.add_argument("--consistent", action="store_true", help="clients of a consistent bucket type")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    # What is cleaned up after an error is also cleaned up then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="annulet-netns-") as folder, namespaces(NODES) as spaces:
        chosen = [shape for shape in shapes(spaces) if args.only in (None, shape.name)]
        cluster = Cluster(args.binary, folder, places=[space.place() for space in spaces])
        failed = 0
        try:
            cluster.start()
            cluster.until_whole()
            if args.consistent:
                activate(cluster[0], ConsistentRun.TYPE)
            kind = ConsistentRun if args.consistent else Run
            for shape in chosen:
                failed += not kind(shape, spaces, cluster, args.seconds / len(chosen), rng).run()
            ended_badly = [node.name for node in cluster if not node.is_running() or node.stop() != 0]
        finally:
            cluster.kill()
    for name in ended_badly:
        print(f"{name} did not end as it should")
    print(f"{len(chosen) - failed} passed, {failed + len(ended_badly)} failed")
    return 0 if failed == 0 and not ended_badly and chosen else 1


if __name__ == "__main__":
    sys.exit(main())
