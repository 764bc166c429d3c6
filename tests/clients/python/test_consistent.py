"""Consistent bucket types: conditions over both protocols, and one order of all requests while nodes come and go."""

import json
import signal
import tempfile
import urllib.error
import urllib.request

from riak import RiakError

from case import Case, binary, new, unread
from cluster import NODES, until
from history import History
from test_cluster import ClusterCase
from test_http import ByHttp


def operate(server, method, path, body=b""):
    """Makes a request of an operator; the answer."""
    url = f"http://{server.host}:{server.http_port}/admin/{path}"
    request = urllib.request.Request(url, body or None, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def activate(server, name):
    """Makes a consistent bucket type, once all nodes have registered their stores."""
    operate(server, "PUT", f"bucket-types/{name}", json.dumps({"props": {"consistent": True, "n_val": 3}}).encode())

    def is_activated():
        try:
            operate(server, "POST", f"bucket-types/{name}/activate", b"{}")
        except urllib.error.HTTPError:
            return False
        return True

    until("the activation", is_activated)


class Consistent(Case):
    """A bucket of a type that all of these tests share: its groups are founded once."""

    TYPE = "consistent"

    def setUp(self):
        super().setUp()
        status = json.loads(operate(self.server, "GET", "strong"))
        if not status["foundings"]:
            activate(self.server, self.TYPE)
        name = f"{type(self).__name__}-{self._testMethodName}"
        self.bucket = self.client.bucket_type(self.TYPE).bucket(name)

    def fails(self, function, *args, **options):
        """The condition does not hold."""
        with self.assertRaises(RiakError) as raised:
            function(*args, **options)
        # By HTTP the client names the statuses that it expected.
        self.assertTrue(raised.exception.value == "failed" or "412" in str(raised.exception.value), raised.exception)

    def test_a_write_without_a_context_is_the_first_one(self):
        self.assertFalse(self.bucket.get("k").exists)
        self.store(self.bucket, "k", b"one")
        self.fails(self.store, self.bucket, "k", b"two")
        self.fails(self.store, self.bucket, "k", b"two", if_none_match=True)
        self.assertEqual(self.bucket.get("k").encoded_data, b"one")

    def test_a_write_over_a_version_that_was_replaced_fails(self):
        self.store(self.bucket, "k", b"one")
        mine, theirs = self.bucket.get("k"), self.bucket.get("k")
        mine.encoded_data, theirs.encoded_data = b"mine", b"theirs"
        mine.store()
        self.fails(theirs.store)
        # A write that returns the object brings the next context.
        mine.encoded_data = b"mine again"
        mine.store()
        self.assertEqual([s.encoded_data for s in self.bucket.get("k").siblings], [b"mine again"])

    def test_deletes_with_and_without_a_context(self):
        self.store(self.bucket, "k", b"one")
        read = self.bucket.get("k")
        changed = self.bucket.get("k")
        changed.encoded_data = b"two"
        changed.store()
        self.fails(read.delete)
        self.bucket.get("k").delete()
        self.assertFalse(self.bucket.get("k").exists)
        unread(self.bucket, "k").delete()
        self.store(self.bucket, "k", b"three")
        unread(self.bucket, "k").delete()
        self.assertFalse(self.bucket.get("k").exists)

    def test_quorums_are_ignored(self):
        new(self.bucket, "k", b"v").store(w=1, dw=0, pw=1)
        for quorum in (1, "all"):
            self.assertEqual(self.bucket.get("k", r=quorum, pr=quorum).encoded_data, b"v")

    def test_a_bucket_has_no_n_val_of_its_own(self):
        with self.assertRaises(RiakError):
            self.bucket.set_property("n_val", 5)
        self.assertEqual(self.bucket.get_property("n_val"), NODES)


class HttpConsistent(ByHttp, Consistent):
    pass


class UnderFaults(ClusterCase):
    """Clients of all nodes contend for few keys while nodes are killed, paused and restarted."""

    def setUp(self):
        super().setUp()
        activate(self.one, "consistent")
        self.history = History("consistent", self._testMethodName, list(self.cluster))
        self.addCleanup(self.history.stop)
        self.history.wait(100)

    def judge(self):
        self.history.wait(200)
        self.history.stop()
        with tempfile.TemporaryDirectory(prefix="annulet-client-") as folder:
            text, is_linearizable = self.history.check(binary(), folder)
        self.assertTrue(is_linearizable, text)
        # A request is refused or unknown, and nothing else.
        self.assertLessEqual(self.history.refusals(), {"failed", "unavailable", "timeout"})

    def test_each_node_is_killed_in_turn(self):
        for node in self.cluster:
            node.kill()
            self.history.wait(200)
            node.start()
            self.history.wait(100)
        self.judge()

    def test_all_are_killed_at_once(self):
        for node in self.cluster:
            node.signal(signal.SIGKILL)
        for node in self.cluster:
            node.kill()
        self.cluster.start()
        self.judge()

    def test_each_node_is_paused_in_turn(self):
        for node in self.cluster:
            with node.paused():
                self.history.wait(200)
        self.judge()

    def test_each_node_is_restarted_in_turn(self):
        for node in self.cluster:
            self.assertEqual(node.stop(), 0)
            self.history.wait(100)
            node.start()
            self.history.wait(100)
        self.judge()
        self.assertEqual([node.stop() for node in self.cluster], [0] * NODES)
