"""Clients that contend for a few keys of a consistent bucket type, and the history of their requests.

Each client reads, writes and deletes, with and without conditions, and notes each request with its times and its result
in the format of `annulet bench run --history`. `annulet bench check` then judges whether there is one order of them.
"""

import itertools
import json
import os
import random
import subprocess
import threading
import time

from http.client import HTTPException

from riak import RiakClient, RiakError
from riak.riak_object import RiakObject
from riak.transports.pool import BadResource, ConnectionClosed

# The deadline of a request, and the time beyond it after which the client gives up.
DEADLINE_SECONDS = 5
GRACE_SECONDS = 10

AFTER_ERROR_SECONDS = 0.05

# A bound on the wait for acknowledged requests: it only ends a run that has come to a stop.
STOPPED_SECONDS = 60

KEYS = 6
OPERATIONS = {"get": 6, "put_once": 3, "cas": 5, "delete_if": 1, "delete": 1}

CONNECTION_ERRORS = (OSError, HTTPException, BadResource, ConnectionClosed)


class OneTry(RiakClient):
    """A client that sends no request twice: a second try of a write that was applied would be seen as a failure."""

    def _with_retries(self, pool, function):
        with pool.transaction(yield_resource=True) as resource:
            try:
                return function(resource.object)
            except CONNECTION_ERRORS:
                resource.errored = True
                raise


class Contender(threading.Thread):
    """One client at a time: a client whose request has an unknown outcome is replaced by another one."""

    def __init__(self, history, node, seed):
        super().__init__(daemon=True)
        self.history, self.node, self.rng = history, node, random.Random(seed)
        self.lines, self.refusals = [], set()
        self.begin_anew()

    def begin_anew(self):
        self.process = next(self.history.processes)
        # The object that was read last, by key.
        self.read = {}
        place = {"host": self.node.host, "pb_port": self.node.pb_port, "http_port": self.node.http_port}
        self.client = OneTry(nodes=[place], transport_options={"timeout": DEADLINE_SECONDS + GRACE_SECONDS})
        bucket_type = self.client.bucket_type(self.history.bucket_type)
        self.bucket = bucket_type.bucket(self.history.bucket)

    def run(self):
        while not self.history.stopping.is_set():
            self.request(f"k{self.rng.randrange(KEYS)}")
        self.client.close()

    def request(self, key):
        """Makes a random request, and notes it."""
        op = self.rng.choices(list(OPERATIONS), OPERATIONS.values())[0]
        if op in ("cas", "delete_if") and key not in self.read:
            op = "get"
        line = {"process": self.process, "op": op, "key": f"{self.history.bucket}/{key}", "value": None}
        if op in ("cas", "delete_if"):
            line["expected"] = self.read[key][0]
        if op in ("put_once", "cas"):
            line["value"] = next(self.history.values)

        line["call"] = self.history.now()
        try:
            line["value"] = getattr(self, op)(key, line["value"])
            line["result"] = "ok"
        except ConnectionRefusedError:
            # Nobody has heard of it.
            self.history.stopping.wait(AFTER_ERROR_SECONDS)
            return
        except RiakError as error:
            text = str(error.value)
            line["result"] = text if text in ("failed", "unavailable") else "timeout"
            self.refusals.add(text)
        except CONNECTION_ERRORS:
            line["result"] = "timeout"
        line["return"] = self.history.now()
        self.lines.append(line)
        self.follow(line["result"])

    def follow(self, result):
        if result == "ok":
            self.history.acknowledged.release()
        elif result == "timeout":
            self.client.close()
            self.begin_anew()
        if result in ("timeout", "unavailable"):
            self.history.stopping.wait(AFTER_ERROR_SECONDS)

    def get(self, key, _):
        self.read.pop(key, None)
        found = self.bucket.get(key, timeout=DEADLINE_SECONDS * 1000)
        if not found.exists:
            return None
        # No write of these clients makes siblings, so several are a fault.
        value = int(found.encoded_data) if len(found.siblings) == 1 else 0
        self.read[key] = (value, found)
        return value

    def put_once(self, key, value):
        put = self.bucket.new(key, encoded_data=b"%d" % value, content_type="application/octet-stream")
        put.store(return_body=False, timeout=DEADLINE_SECONDS * 1000)
        return value

    def cas(self, key, value):
        _, read = self.read.pop(key)
        read.encoded_data = b"%d" % value
        read.store(return_body=False, timeout=DEADLINE_SECONDS * 1000)
        return value

    def delete_if(self, key, _):
        _, read = self.read.pop(key)
        read.delete(timeout=DEADLINE_SECONDS * 1000)

    def delete(self, key, _):
        self.read.pop(key, None)
        RiakObject(self.client, self.bucket, key).delete(timeout=DEADLINE_SECONDS * 1000)


class History:
    """All clients, a few of each node, and their requests."""

    def __init__(self, bucket_type, bucket, nodes, clients_per_node=2, seed=1):
        self.bucket_type, self.bucket = bucket_type, bucket
        self.processes, self.values = itertools.count(), itertools.count(1)
        self.stopping, self.acknowledged = threading.Event(), threading.Semaphore(0)
        self.begin = time.monotonic_ns()
        places = [node for node in nodes for _ in range(clients_per_node)]
        self.contenders = [Contender(self, node, seed * 1000 + number) for number, node in enumerate(places)]
        for contender in self.contenders:
            contender.start()

    def now(self):
        return time.monotonic_ns() - self.begin

    def wait(self, count):
        """Until so many more requests are acknowledged."""
        for _ in range(count):
            if not self.acknowledged.acquire(timeout=STOPPED_SECONDS):
                raise AssertionError(f"no request is acknowledged within {STOPPED_SECONDS} s")

    def stop(self):
        self.stopping.set()
        for contender in self.contenders:
            contender.join(DEADLINE_SECONDS + GRACE_SECONDS + STOPPED_SECONDS)
            if contender.is_alive():
                raise AssertionError("a request hangs")

    def refusals(self):
        """Texts of all errors that nodes have answered."""
        return set().union(*(contender.refusals for contender in self.contenders))

    def check(self, binary, folder):
        """Judges the history; the verdict's text, and whether it is linearizable."""
        path = os.path.join(folder, f"{self.bucket}.jsonl")
        with open(path, "w", encoding="ascii") as file:
            print(json.dumps({"format": 1, "name": self.bucket}), file=file)
            for contender in self.contenders:
                for line in contender.lines:
                    print(json.dumps(line), file=file)
        judged = subprocess.run([binary, "bench", "check", path], capture_output=True, text=True)
        return judged.stdout + judged.stderr, judged.returncode == 0
