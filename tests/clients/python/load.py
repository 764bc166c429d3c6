"""Writers that keep to themselves what was acknowledged, and what must therefore be there in the end.

Each writer has keys of its own: it writes each once and deletes some of them. All writers together grow sets, each
by reading, joining what siblings there are, adding an element and writing back. So it is known without asking
anybody: a key that was acknowledged has its value, unless its delete was acknowledged, and then it is gone for good;
a set holds every element whose write was acknowledged. What failed may have happened or not.
"""

import threading
import time
from typing import NamedTuple, Optional

from riak import RiakClient, RiakError
from riak.transports.pool import BadResource, ConnectionClosed

# What a request may take before the server answers `timeout`, and what it is given beyond that before it hangs: time
# for a second request, and for a busy machine.
DEADLINE_SECONDS = 5
GRACE_SECONDS = 10

AFTER_ERROR_SECONDS = 0.05

DELETE_EVERY = 5
ADD_EVERY = 4
ADDITIONS_PER_SET = 10

# A bound on waiting for acknowledged writes: it only ends what has come to a stop.
STOPPED_SECONDS = 30

CONNECTION_ERRORS = (OSError, BadResource, ConnectionClosed)


def union(conflict):
    """Resolves siblings of a set."""
    items = sorted({item for sibling in conflict.siblings if sibling.exists for item in sibling.data})
    conflict.siblings = [conflict.siblings[0]]
    conflict.data = items


def patient_client(nodes):
    """A client of these nodes, which moves on to another one when a connection fails."""
    places = [{"host": node.host, "pb_port": node.pb_port, "http_port": node.http_port} for node in nodes]
    return RiakClient(nodes=places, transport_options={"timeout": DEADLINE_SECONDS + GRACE_SECONDS})


class Attempt(NamedTuple):
    """A request: when it began, how long it took, and what it failed with, if it did."""

    begin: float
    seconds: float
    error: Optional[str]


class Writer(threading.Thread):
    """One of them, with a client of its own."""

    def __init__(self, load, number, nodes):
        super().__init__(daemon=True)
        self.load, self.number = load, number
        self.client = patient_client(nodes)
        self.kept, self.unsure, self.gone = {}, {}, set()
        self.added, self.tried = set(), set()
        self.attempts = []

    def run(self):
        plain = self.client.bucket(self.load.plain)
        sets = self.client.bucket(self.load.sets)
        sets.resolver = union
        try:
            turn = 0
            while not self.load.stopping.is_set():
                turn += 1
                stored = self.write(plain, f"{self.number}-{turn}")
                if stored and turn % DELETE_EVERY == 0:
                    self.delete(stored)
                if turn % ADD_EVERY == 0:
                    self.add(sets, f"{turn // ADD_EVERY // ADDITIONS_PER_SET}", f"{self.number}-{turn}")
        finally:
            self.client.close()

    def attempt(self, function):
        """Whether it was acknowledged."""
        begin = time.monotonic()
        error = None
        try:
            function(timeout=DEADLINE_SECONDS * 1000)
        except RiakError as refusal:
            error = str(refusal.value)
        except CONNECTION_ERRORS as failure:
            error = repr(failure)
        self.attempts.append(Attempt(begin, time.monotonic() - begin, error))
        if error is None:
            self.load.acknowledged.release()
        # A node that is gone refuses thousands of times a second.
        self.load.stopping.wait(AFTER_ERROR_SECONDS if error else self.load.pause)
        return error is None

    def write(self, bucket, key):
        value = f"value of {key} ".encode() * 20
        stored = bucket.new(key, encoded_data=value, content_type="application/octet-stream")
        self.unsure[key] = value
        if not self.attempt(stored.store):
            return None
        self.kept[key] = self.unsure.pop(key)
        return stored

    def delete(self, stored):
        self.unsure[stored.key] = self.kept.pop(stored.key)
        if self.attempt(stored.delete):
            del self.unsure[stored.key]
            self.gone.add(stored.key)

    def add(self, sets, key, element):
        def read_and_write(timeout):
            read = sets.get(key, timeout=timeout)
            read.data = sorted(set(read.data or []) | {element})
            self.tried.add((key, element))
            read.store(timeout=timeout, return_body=False)

        if self.attempt(read_and_write):
            self.added.add((key, element))


class Load:
    """Writers on the nodes of their lists: a writer for each list. They begin at once."""

    def __init__(self, plain, sets, lists, pause=0):
        self.plain, self.sets, self.pause = plain, sets, pause
        self.acknowledged = threading.Semaphore(0)
        self.stopping = threading.Event()
        self.writers = [Writer(self, number, nodes) for number, nodes in enumerate(lists)]
        for writer in self.writers:
            writer.start()

    def wait(self, count):
        """Until so many more writes have been acknowledged."""
        for _ in range(count):
            if not self.acknowledged.acquire(timeout=STOPPED_SECONDS):
                raise AssertionError(f"the writers have come to a stop: {self.errors[-10:]}")

    def stop(self):
        """Ends it; no request may outlive its deadline."""
        self.stopping.set()
        for writer in self.writers:
            writer.join(4 * GRACE_SECONDS)
            if writer.is_alive():
                raise AssertionError("a request hangs")
        longest = max(attempt.seconds for attempt in self.all("attempts"))
        if longest > DEADLINE_SECONDS + GRACE_SECONDS:
            raise AssertionError(f"a request outlived its deadline: {longest:.1f} s")

    def all(self, what):
        """What all writers together have under a name."""
        parts = [getattr(writer, what) for writer in self.writers]
        if isinstance(parts[0], dict):
            return {key: value for part in parts for key, value in part.items()}
        if isinstance(parts[0], set):
            return set().union(*parts)
        return [item for part in parts for item in part]

    @property
    def errors(self):
        return [attempt.error for attempt in self.all("attempts") if attempt.error]

    def wrong_keys(self, listed):
        """Whether a listing of the plain keys is what it must be; says what is wrong."""
        listed = set(listed)
        missing = self.all("kept").keys() - listed
        risen = self.all("gone") & listed
        unknown = listed - self.all("kept").keys() - self.all("unsure").keys() - self.all("gone")
        return {name: keys for name, keys in (("missing", missing), ("risen", risen), ("unknown", unknown)) if keys}

    def keys(self):
        """All plain keys that were ever written."""
        return sorted(self.all("kept").keys() | self.all("unsure").keys() | self.all("gone"))

    def wrong_values(self, client, keys, **options):
        """Which of these keys a client does not read as they must be, and what it read."""
        plain = client.bucket(self.plain)
        kept, unsure, gone = self.all("kept"), self.all("unsure"), self.all("gone")
        wrong = {}
        for key in keys:
            allowed = [[kept[key]]] if key in kept else [[]] if key in gone else [[], [unsure[key]]]
            values = [s.encoded_data for s in plain.get(key, **options).siblings if s.exists]
            if values not in allowed:
                wrong[key] = ("acknowledged" if key in kept else "deleted" if key in gone else "unsure", values)
        return wrong

    def wrong_elements(self, client, **options):
        """Whether the sets hold what they must; says what is wrong."""
        sets = client.bucket(self.sets)
        sets.resolver = union
        found = set()
        for name in sorted({name for name, _ in self.all("tried")}):
            found |= {(name, element) for element in sets.get(name, **options).data or []}
        parts = {"lost": self.all("added") - found, "unknown": found - self.all("tried")}
        return {name: elements for name, elements in parts.items() if elements}
