"""Three nodes: quorums, what each error says, and kills, pauses and restarts under load."""

import contextlib
import os
import signal
import socket
import time

from riak import RiakClient, RiakError
from riak.pb import riak_kv_pb2

from case import REPLICAS, Case, connect, new, start_cluster, start_dev, unread
from cluster import NODES, RING_SIZE, until
from load import Load
from server import HOST
from wire import ServerError, error_text, put_request

QUORUMS = ("one", "quorum", "all", "default", 0, 1, 2, 3)

# A pause this short is not noticed by the other nodes.
UNNOTICED_SECONDS = 1


def stored(bucket, key, value, **options):
    """Whether a write succeeds."""
    try:
        new(bucket, key, value).store(**options)
    except RiakError:
        return False
    return True


class ClusterCase(Case):
    """A test with three nodes of its own, and a client for each of them."""

    own_nodes = True

    def setUp(self):
        self.cluster = start_cluster(self)
        self.clients = {node: self.client_of(node) for node in self.cluster}
        self.one, self.two, self.three = self.cluster
        self.client = self.clients[self.one]
        self.cluster.until_whole()

    def client_of(self, node):
        client = connect(node)
        self.addCleanup(client.close)
        return client

    def at(self, node, bucket):
        """The same bucket, through another node."""
        return self.clients[node].bucket(bucket.name)

    def until_without(self, *away):
        """Until the others count these as down."""
        rest = self.cluster.but(*away)
        until("a node is missed", lambda: not any(node.reaches(len(rest) + 1) for node in rest))

    def seen(self, bucket, key, **options):
        """The values of all siblings as each node that runs gives them."""
        nodes = [node for node in self.cluster if node.is_running()]
        return [sorted(s.encoded_data for s in self.at(node, bucket).get(key, **options).siblings) for node in nodes]

    def until_none(self, what, wrong):
        """Until nothing is wrong, or patience ends, and then this is what is wrong."""
        with contextlib.suppress(AssertionError):
            until(what, lambda: not wrong())
        self.assertEqual(wrong(), {}, what)

    def until_listed(self, node, load):
        """Until a node has itself, without asking others, what a load has left: listings are of what is there."""
        keys = self.at(node, self.client.bucket(load.plain)).get_keys
        self.until_none(f"what {node.name} missed", lambda: load.wrong_keys(keys()))

    def load(self, lists):
        load = Load(self.bucket().name, self.bucket(allow_mult=True).name, lists)
        self.addCleanup(load.stop)
        return load

    def check(self, load):
        """All that was acknowledged is there, whichever node is asked, once hints have come home."""
        for number, client in enumerate(self.clients.values()):
            wrong = load.keys()[number::NODES]

            def wrong_values():
                nonlocal wrong
                wrong = load.wrong_values(client, wrong, pr=2)
                return wrong

            self.until_none("values", wrong_values)
            self.until_none("sets", lambda: load.wrong_elements(client, pr=2))
        # The reads have mended what a node had missed that nobody was left to tell.
        for node in self.cluster:
            self.until_listed(node, load)


class Healthy(ClusterCase):
    def test_what_one_node_took_all_answer_with_every_quorum(self):
        bucket = self.bucket()
        for quorum in QUORUMS:
            for name in ("w", "dw", "pw"):
                with self.subTest(quorum=quorum, name=name):
                    key = f"{name}-{quorum}"
                    new(self.at(self.two, bucket), key, b"v").store(**{name: quorum})
        for quorum in QUORUMS:
            for name in ("r", "pr"):
                for key in ("w-all", "dw-all", "pw-all"):
                    with self.subTest(quorum=quorum, name=name, key=key):
                        self.assertEqual(self.seen(bucket, key, **{name: quorum}), [[b"v"]] * NODES)
        # A write that needed two of three is in every set of two.
        for key in ("w-2", "dw-quorum", "w-default"):
            self.assertEqual(self.seen(bucket, key, r=2), [[b"v"]] * NODES)
        for name, function in (("r", bucket.get), ("w", new(bucket, "k", b"v").store)):
            arguments = ("k",) if name == "r" else ()
            self.assert_refused("{n_val_violation,3}", function, *arguments, **{name: 4})

    def test_so_many_nodes_confirm(self):
        wire = self.wire(self.one)
        get = riak_kv_pb2.RpbGetReq(bucket=b"confirmed", key=b"k").SerializeToString() + b"\x70"
        put = put_request(b"confirmed", b"k", b"v").SerializeToString() + b"\x88\x01"
        for nodes in (1, 2, 3):
            for code, request in ((11, put), (9, get)):
                wire.send(code, request + bytes([nodes]))
                self.assertIsNotNone(wire.receive_message() or code == 11)
        self.three.kill()
        self.until_without(self.three)
        for code, request in ((11, put), (9, get)):
            wire.send(code, request + b"\x02")
            wire.receive_message()
            wire.send(code, request + b"\x03")
            self.assertEqual(error_text(wire.receive()), "{node_confirms_val_unsatisfied,3,2}")

    def test_a_preference_list_names_all_nodes(self):
        names = {node.name for node in self.cluster}
        for key in ("a", "b", "c", "d"):
            lists = [client.get_preflist(self.client.bucket("b"), key) for client in self.clients.values()]
            self.assertEqual(lists, [lists[0]] * NODES)
            self.assertEqual({place["node"] for place in lists[0]}, names)
            self.assertTrue(all(place["primary"] and 0 <= place["partition"] < RING_SIZE for place in lists[0]))

    def test_turns_through_different_nodes_make_no_siblings(self):
        bucket = self.bucket(allow_mult=True)
        new(bucket, "k", b"").store()
        for turn in range(30):
            theirs = self.at(self.cluster[turn % NODES], bucket).get("k")
            self.assertEqual(len(theirs.siblings), 1)
            theirs.encoded_data += b"%d," % turn
            theirs.store(return_body=False)
        self.assertEqual(self.seen(bucket, "k"), [[b"".join(b"%d," % turn for turn in range(30))]] * NODES)

    def test_blind_writes_through_different_nodes_are_all_kept(self):
        bucket = self.bucket(allow_mult=True)
        for turn in range(9):
            new(self.at(self.cluster[turn % NODES], bucket), "k", b"%d" % turn).store(return_body=False)
        values = [b"%d" % turn for turn in range(9)]
        self.assertEqual(self.seen(bucket, "k"), [values] * NODES)
        got = self.at(self.three, bucket).get("k")
        got.siblings = got.siblings[:1]
        got.encoded_data = b"resolved"
        got.store()
        self.assertEqual(self.seen(bucket, "k"), [[b"resolved"]] * NODES)

    def test_properties_set_on_one_node_are_in_force_on_all(self):
        bucket = self.bucket()
        for number in (1, 2, 3, 4):
            changes = {"n_val": number, "allow_mult": bool(number % 2)}
            self.at(self.cluster[number % NODES], bucket).set_properties(changes)
            for node in self.cluster:
                props = self.at(node, bucket).get_properties()
                self.assertEqual({name: props[name] for name in changes}, changes)
        self.at(self.two, bucket).clear_properties()
        self.assertEqual([self.at(node, bucket).n_val for node in self.cluster], [3] * NODES)

    def test_each_node_lists_what_all_have(self):
        bucket = self.bucket()
        keys = [f"k{i}" for i in range(30)]
        for i, key in enumerate(keys):
            new(self.at(self.cluster[i % NODES], bucket), key, b"v").store(w=REPLICAS)
        for node, client in self.clients.items():
            self.assertEqual(sorted(self.at(node, bucket).get_keys()), sorted(keys))
            self.assertEqual([listed.name for listed in client.get_buckets()], [bucket.name])
        # Of a bucket with fewer copies each node has only some keys, and lists all of them.
        smaller = self.bucket(n_val=2)
        for key in keys:
            new(smaller, key, b"v").store(w=2)
        both = sorted([bucket.name, smaller.name])
        for node, client in self.clients.items():
            self.assertEqual(sorted(self.at(node, smaller).get_keys()), sorted(keys))
            self.assertEqual(sorted(listed.name for listed in client.get_buckets()), both)

    def test_a_load_on_all_nodes(self):
        load = self.load([[node] for node in self.cluster])
        load.wait(400)
        load.stop()
        self.assertEqual(load.errors, [])
        self.check(load)
        self.assertEqual([node.stop() for node in self.cluster], [0] * NODES)


class OneDown(ClusterCase):
    def setUp(self):
        super().setUp()
        self.missed = self.bucket()
        new(self.missed, "before", b"v").store(w=3)
        self.three.kill()
        self.until_without(self.three)

    def refused(self, text, function, *args, **options):
        with self.assertRaises(ServerError) as raised:
            function(*args, **options)
        self.assertEqual(str(raised.exception), text)

    def test_errors_say_what_riak_s_say(self):
        for node in (self.one, self.two):
            bucket = self.at(node, self.missed)
            self.assert_refused("{pr_val_unsatisfied,3,2}", bucket.get, "before", pr=3)
            self.assert_refused("{pr_val_unsatisfied,3,2}", bucket.get, "never", pr="all")
            self.assert_refused("{pw_val_unsatisfied,3,2}", new(bucket, "k", b"v").store, pw=3)
            self.assert_refused("{pw_val_unsatisfied,3,2}", unread(bucket, "before").delete, pw=3)
            wire, name = self.wire(node), bucket.name.encode()
            insufficient = "{insufficient_vnodes,2,need,3}"
            self.refused(insufficient, wire.put, name, b"k", b"v", w=3, sloppy_quorum=False)
            self.refused(insufficient, wire.put, name, b"k", b"v", dw=3, sloppy_quorum=False)
            self.refused(insufficient, wire.get, name, b"before", r=3, sloppy_quorum=False)
            # What was refused was not begun.
            self.assertEqual(len(wire.get(name, b"k").content), 0)

    def test_two_of_three_do_everything_else(self):
        for node in (self.one, self.two):
            bucket = self.at(node, self.missed)
            for quorum in (1, 2, 3, "all", "default"):
                for name in ("w", "dw"):
                    new(bucket, f"{name}-{quorum}", b"v").store(**{name: quorum})
                    for reader in (self.one, self.two):
                        got = self.at(reader, self.missed).get(f"{name}-{quorum}", r=quorum, pr=2)
                        self.assertEqual(got.encoded_data, b"v")
            new(bucket, "pw", b"v").store(pw=2)
            unread(bucket, "pw").delete(pw=2)
            self.assertFalse(bucket.get("pw").exists)
            self.wire(node).put(b"strict", b"k", b"v", w=2, sloppy_quorum=False)
            self.assertEqual(self.wire(node).get(b"strict", b"k", r=2, sloppy_quorum=False).content[0].value, b"v")

    def test_a_quorum_of_writes_and_one_of_reads_have_a_node_in_common(self):
        # The node that stands in for the third is the same whoever asks; with another one for each, either would
        # be a quorum of its own.
        for turn in range(10):
            key = b"%d" % turn
            alone = [self.answers_alone(self.one, self.two, key), self.answers_alone(self.two, self.one, key)]
            self.assertNotEqual(alone, [True, True], "each of the two is a quorum by itself")

    def answers_alone(self, node, other, key):
        """Whether a node meets a quorum of two without another one, which it counts as up."""
        until("they reach each other", lambda: node.reaches(2))
        wire = self.wire(node)
        begin = time.monotonic()
        with other.paused():
            wire.send_message(riak_kv_pb2.RpbGetReq(bucket=b"common", key=key, r=2))
            wire.socket.settimeout(UNNOTICED_SECONDS / 4)
            try:
                wire.receive_message()
            except socket.timeout:
                return False
            # On a machine this slow the other was missed, and is no longer counted on.
            return time.monotonic() - begin < UNNOTICED_SECONDS

    def test_the_last_node_goes_on_alone(self):
        self.two.kill()
        self.until_without(self.two, self.three)
        bucket = self.at(self.one, self.missed)
        self.assertEqual(bucket.get("before").encoded_data, b"v")
        new(bucket, "k", b"v").store(w=3, dw=3)
        self.assertEqual(bucket.get("k", r=3).encoded_data, b"v")
        self.assert_refused("{pr_val_unsatisfied,2,1}", bucket.get, "k", pr=2)
        self.assert_refused("{pw_val_unsatisfied,2,1}", new(bucket, "k", b"w").store, pw=2)
        self.two.start()
        self.three.start()
        self.cluster.until_whole()
        until("hints", lambda: all("k" in self.at(node, bucket).get_keys() for node in self.cluster))
        self.assertEqual(self.seen(bucket, "k", r=3), [[b"v"]] * NODES)

    def test_properties_reach_who_was_down(self):
        self.missed.set_properties({"n_val": 2, "allow_mult": True})
        self.assertEqual(self.at(self.two, self.missed).n_val, 2)
        reset = self.bucket(n_val=1)
        reset.clear_properties()
        self.three.start()
        until("the properties", lambda: self.at(self.three, self.missed).n_val == 2)
        self.assertTrue(self.at(self.three, self.missed).allow_mult)
        self.assertEqual(self.at(self.three, reset).n_val, 3)
        self.three.kill()
        self.three.start()
        until("the properties", lambda: self.at(self.three, self.missed).n_val == 2)


class Deletes(ClusterCase):
    def test_what_was_deleted_while_a_node_was_down_stays_deleted(self):
        bucket = self.bucket()
        keys = [f"k{i}" for i in range(40)]
        for key in keys:
            new(bucket, key, b"v").store(w=3, return_body=False)
        self.three.kill()
        for i, key in enumerate(keys):
            through = self.at((self.one, self.two)[i % 2], bucket)
            (unread(through, key) if i < 20 else through.get(key)).delete()
        self.three.start()
        # Asked before its hints have come it may not know; what it says must not bring anything back.
        for key in keys:
            self.at(self.three, bucket).get(key)
        self.cluster.until_whole()
        until("the tombstones", lambda: not self.at(self.three, bucket).get_keys())
        for key in keys:
            self.assertEqual(self.seen(bucket, key), [[]] * NODES)
        self.assertEqual([self.at(node, bucket).get_keys() for node in self.cluster], [[]] * NODES)
        with self.one.paused(), self.two.paused():
            self.assertFalse(any(self.at(self.three, bucket).get(key, r=1, pr=0).exists for key in keys))


class Siblings(ClusterCase):
    def test_what_was_written_on_both_sides_of_a_pause_is_kept_and_can_be_resolved(self):
        bucket = self.bucket(allow_mult=True)
        base = new(bucket, "k", b"base").store(w=3)

        def write(node, value):
            put = new(self.at(node, bucket), "k", value)
            put.vclock = base.vclock
            put.store(return_body=False)

        with self.three.paused():
            self.until_without(self.three)
            write(self.one, b"left")
            write(self.two, b"other left")
            self.one.pause()
            self.two.pause()
        try:
            self.until_without(self.one, self.two)
            self.assertEqual(self.at(self.three, bucket).get("k").encoded_data, b"base")
            write(self.three, b"right")
        finally:
            self.one.resume()
            self.two.resume()
        self.cluster.until_whole()
        sides = [b"left", b"other left", b"right"]
        self.assertEqual(self.seen(bucket, "k", pr=3, r=3), [sides] * NODES)
        got = self.at(self.two, bucket).get("k")
        got.siblings = got.siblings[:1]
        got.encoded_data = b"resolved"
        got.store(w=3)
        self.assertEqual(self.seen(bucket, "k"), [[b"resolved"]] * NODES)
        with self.one.paused(), self.two.paused():
            self.assertEqual(self.at(self.three, bucket).get("k", r=1, pr=0).encoded_data, b"resolved")


class UnderLoad(ClusterCase):
    def check_alone(self, node, load):
        """What a node answers when there is nobody else to ask."""
        with contextlib.ExitStack() as stack:
            for other in self.cluster.but(node):
                stack.enter_context(other.paused())
            self.assertEqual(load.wrong_values(self.clients[node], load.keys(), r=1, pr=0), {})
        self.cluster.until_whole()

    def test_a_node_that_is_killed_and_started_again(self):
        load = self.load([[self.one], [self.two], [self.one, self.two]])
        load.wait(200)
        self.three.kill()
        load.wait(300)
        self.until_without(self.three)
        errors = len(load.errors)
        load.wait(200)
        self.assertEqual(load.errors[errors:], [], "two of three are enough")
        self.three.start()
        load.wait(200)
        load.stop()
        self.assertLessEqual(errors, len(load.writers), load.errors)
        self.cluster.until_whole()
        self.until_listed(self.three, load)
        self.check_alone(self.three, load)
        self.check(load)

    def test_a_node_that_is_paused(self):
        load = self.load([[self.one], [self.two], [self.one, self.two]])
        load.wait(200)
        with self.three.paused():
            load.wait(100)
            self.until_without(self.three)
            rest = self.cluster.but(self.three)
            self.assertEqual([node.stats()["peers_up"] for node in rest], [1, 1])
            errors = len(load.errors)
            load.wait(300)
            self.assertEqual(load.errors[errors:], [], "two of three are enough")
        load.wait(200)
        load.stop()
        self.assertEqual(load.errors, [])
        self.cluster.until_whole()
        self.until_listed(self.three, load)
        kept, home, lost = (sum(node.stats()[name] for node in rest) for name in ("hints", "hints_home", "hints_lost"))
        # A hint that is kept several times is brought home once.
        self.assertTrue(0 < home <= kept and lost == 0, (kept, home, lost))
        self.check_alone(self.three, load)
        self.check(load)

    def test_each_node_is_restarted_in_turn(self):
        # Clients of one node and clients that know all of them.
        load = self.load([[self.one], [self.two], [self.three], list(self.cluster)])
        for node in self.cluster:
            load.wait(100)
            self.assertEqual(node.stop(), 0)
            load.wait(100)
            node.start()
            self.cluster.until_whole()
        load.wait(100)
        load.stop()
        # Who knows all nodes has somebody to ask.
        self.assertEqual([attempt.error for attempt in load.writers[-1].attempts if attempt.error], [])
        self.check(load)

    def test_all_are_killed_at_once(self):
        load = self.load([[self.one], [self.two], [self.three], list(self.cluster)])
        for _ in range(2):
            load.wait(300)
            for node in self.cluster:
                node.signal(signal.SIGKILL)
            for node in self.cluster:
                node.kill()
                self.assertEqual(node.process.returncode, -signal.SIGKILL)
            self.cluster.start()
            self.cluster.until_whole()
        load.wait(100)
        load.stop()
        self.check(load)
        self.assertEqual([node.stop() for node in self.cluster], [0] * NODES)


class Dev(Case):
    """`annulet dev`: where it listens, where its nodes' pids are, and how it ends."""

    own_nodes = True

    def setUp(self):
        self.dev = start_dev(self)

    def clients(self):
        for pb_port, http_port in self.dev.ports():
            client = RiakClient(protocol="pbc", host=HOST, pb_port=pb_port, http_port=http_port)
            self.addCleanup(client.close)
            yield client

    def pids(self):
        pids = []
        for path in self.dev.pid_files():
            with open(path, encoding="ascii") as file:
                pids.append(int(file.read()))
        return pids

    def assert_gone(self, pids):
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_one_command_starts_three_nodes_and_one_signal_stops_them(self):
        clients = list(self.clients())
        name = "dev"
        until("they have met", lambda: stored(clients[0].bucket(name), "k", b"v", pw=NODES))
        self.assertEqual([client.bucket(name).get("k").encoded_data for client in clients], [b"v"] * NODES)
        pids = self.pids()
        self.assertEqual(self.dev.stop(), 0)
        self.assert_gone(pids)
        self.dev.start()
        self.assertEqual([client.bucket(name).get("k").encoded_data for client in clients], [b"v"] * NODES)
        pids = self.pids()
        os.kill(pids[1], signal.SIGKILL)
        until("a write without the second", lambda: stored(clients[0].bucket(name), "k", b"w"))
        self.dev.ask("start", "2")
        self.assertEqual([client.bucket(name).get("k").encoded_data for client in clients], [b"w"] * NODES)
        self.assertEqual(self.dev.stop(), 0)
        self.assert_gone(pids)
