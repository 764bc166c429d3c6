"""A node that is stopped and started, and one that is killed: clients reconnect, and what was acknowledged is there."""

import signal
import socket
import threading

from riak import RiakError
from riak.transports.pool import BadResource, ConnectionClosed

from case import Case, connect, new, start_server

# Errors that a server's end may cause: the write may have happened or not.
UNKNOWN_FATE = (OSError, BadResource, ConnectionClosed)
WRITERS = 4
ACKNOWLEDGED_BEFORE_END = 200


class Restarts(Case):
    own_nodes = True

    def setUp(self):
        self.server = start_server(self)
        self.client = connect(self.server)
        self.addCleanup(self.client.close)

    def fill(self):
        """Some of everything; returns what is to be found again."""
        plain = self.bucket()
        multi = self.bucket(allow_mult=True, n_val=2, postcommit=[{"mod": "m", "fun": "f"}])
        self.bucket(n_val=5).clear_properties()
        for i in range(100):
            one = new(plain, f"k{i}", b"%d" % i)
            one.usermeta = {"i": str(i)}
            one.add_index("i_int", i)
            one.store()
        for i in range(0, 100, 10):
            plain.get(f"k{i}").delete()
        for value in (b"a", b"b", b"c"):
            self.store(multi, "siblings", value)
        self.store(plain, "large", b"x" * (2 << 20))
        return self.described(plain, multi)

    def described(self, *buckets):
        return {
            bucket.name: (
                bucket.get_properties(),
                {key: self.seen(bucket, key) for key in bucket.get_keys()},
            )
            for bucket in buckets
        }

    def seen(self, bucket, key):
        got = bucket.get(key)
        siblings = [(s.encoded_data, s.etag, s.last_modified, s.usermeta, s.indexes) for s in got.siblings]
        return got.vclock.encode("binary"), siblings

    def check(self, before):
        buckets = [self.client.bucket(name) for name in before]
        self.assertEqual(self.described(*buckets), before)
        plain, multi = buckets
        self.assertFalse(plain.get("k0").exists)
        # Clocks given out before are understood, and new writes are newer than all of them.
        got = multi.get("siblings")
        self.assertEqual(len(got.siblings), 3)
        got.siblings = got.siblings[:1]
        got.encoded_data = b"resolved"
        got.store()
        self.assertEqual(self.values(multi, "siblings"), [b"resolved"])
        self.store(multi, "siblings", b"blind")
        self.assertEqual(self.values(multi, "siblings"), [b"blind", b"resolved"])

    def test_a_clean_stop(self):
        before = self.fill()
        idle = self.wire(self.server)
        self.assertTrue(idle.ping())
        self.assertEqual(self.server.stop(), 0)
        self.assertIsNone(idle.receive())
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.server.pb_port))
        self.server.start()
        # The same client, whose connections are all broken.
        self.assertTrue(self.client.ping())
        self.check(before)
        self.assertEqual(self.server.stop(), 0)

    def test_several_starts(self):
        bucket = self.bucket()
        for i in range(5):
            self.store(bucket, f"k{i}", b"%d" % i)
            self.assertEqual(self.server.stop(), 0)
            self.server.start()
            self.assertEqual(sorted(bucket.get_keys()), [f"k{j}" for j in range(i + 1)])

    def test_a_kill(self):
        before = self.fill()
        self.server.kill()
        self.assertEqual(self.server.process.returncode, -signal.SIGKILL)
        self.server.start()
        self.check(before)
        self.assertEqual(self.server.stop(), 0)

    def test_a_kill_under_load(self):
        self.end_under_load(self.server.kill)

    def test_a_clean_stop_under_load(self):
        def stop():
            self.assertEqual(self.server.stop(), 0)

        self.end_under_load(stop)

    def end_under_load(self, end):
        bucket = self.bucket()
        attempted, acknowledged = self.write_until(end, bucket.name)
        self.assertGreaterEqual(len(acknowledged), ACKNOWLEDGED_BEFORE_END)
        self.server.start()
        for key in acknowledged:
            self.assertEqual(self.values(bucket, key), [key.encode() * 50])
        listed = set(bucket.get_keys())
        self.assertLessEqual(acknowledged, listed)
        self.assertLessEqual(listed, attempted)
        for key in listed - acknowledged:
            self.assertEqual(self.values(bucket, key), [key.encode() * 50], "half a write")
        self.assertEqual(self.server.stop(), 0)

    def write_until(self, end, name):
        """Calls `end` while several clients write; returns the keys that were attempted, and the acknowledged."""
        attempted, acknowledged = set(), set()
        enough = threading.Semaphore(0)

        def write(writer):
            client = connect(self.server)
            try:
                for i in range(100_000):
                    key = f"{writer}-{i}"
                    attempted.add(key)
                    new(client.bucket(name), key, key.encode() * 50).store(return_body=False)
                    acknowledged.add(key)
                    enough.release()
            except UNKNOWN_FATE:
                pass
            finally:
                client.close()

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for _ in range(ACKNOWLEDGED_BEFORE_END):
            self.assertTrue(enough.acquire(timeout=60), "the writers have come to a stop")
        end()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        return attempted, acknowledged

    def test_a_folder_is_one_server_s_at_a_time(self):
        with self.assertRaisesRegex(RuntimeError, "the server ended with [1-9]"):
            second = type(self.server)(self.server.binary, self.server.folder)
            second.log_path += ".second"
            self.addCleanup(second.kill)
            second.start()
        self.assertTrue(self.client.ping())

    def test_what_was_refused_before_a_stop_is_not_there_after(self):
        bucket = self.bucket()
        with self.assertRaises(RiakError):
            self.store(bucket, "k", b"v", w=9)
        self.server.stop()
        self.server.start()
        self.assertEqual(bucket.get_keys(), [])
