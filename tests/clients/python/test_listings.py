"""Listings of buckets and keys, whole and streamed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from riak.pb import riak_kv_pb2

from case import REPLICAS, Case, unread
from test_objects import ODD_NAMES

KEYS = 6_000
WRITERS = 8
# A piece of a listing is bounded: no answer grows with the bucket.
PIECE_MAX = 2_000


class Keys(Case):
    def fill(self, bucket, keys):
        """Writes many keys, over several connections that share syncs."""
        name = bucket.name.encode()

        def write(part):
            wire = self.wire()
            for key in part:
                wire.put(name, key.encode(), b"v", w=REPLICAS)

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, [keys[start::WRITERS] for start in range(WRITERS)]))

    def test_a_bucket_without_keys_lists_none(self):
        bucket = self.bucket()
        self.assertEqual(bucket.get_keys(), [])
        self.assertEqual(list(bucket.stream_keys()), [])
        self.assertEqual(self.wire().list_keys(bucket.name.encode())[-1], [])

    def test_a_bucket_of_thousands_whole_and_streamed(self):
        bucket = self.bucket()
        # Neighbours in every order that keys are kept in, whose keys must not be listed.
        before, after = self.client.bucket(bucket.name[:-1]), self.client.bucket(bucket.name + "-")
        for neighbour in (before, after):
            self.store(neighbour, "not-listed", b"v", w=REPLICAS)
        keys = [f"key-{i:05}" for i in range(KEYS)]
        self.fill(bucket, keys)
        self.assertEqual(sorted(bucket.get_keys()), keys)
        with closing(bucket.stream_keys()) as stream:
            pieces = list(stream)
        self.assertEqual(sorted(key for piece in pieces for key in piece), keys)
        self.assertGreaterEqual(len(pieces), KEYS // PIECE_MAX)
        self.assertLessEqual(max(map(len, pieces)), PIECE_MAX)

        deleted = set(keys[::3])
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda key: unread(bucket, key).delete(w=REPLICAS), sorted(deleted)))
        self.assertEqual(sorted(bucket.get_keys()), [key for key in keys if key not in deleted])

    def test_a_listing_beside_writes_has_every_key_that_was_there_all_the_time(self):
        bucket = self.bucket()
        keys = [f"old-{i:04}" for i in range(2_000)]
        self.fill(bucket, keys)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self.fill, bucket, [f"new-{i:04}" for i in range(1_000)])
            listings = [bucket.get_keys()]
            while not writing.done():
                listings.append(bucket.get_keys())
            writing.result()
        for listed in listings:
            self.assertEqual(len(listed), len(set(listed)), "no key twice")
            self.assertEqual(sorted(key for key in listed if key.startswith("old-")), keys)
        self.assertEqual(len(bucket.get_keys()), 3_000)

    def test_odd_names(self):
        bucket = self.bucket()
        for name in ODD_NAMES:
            self.store(bucket, name, b"v", return_body=False, w=REPLICAS)
        self.assertEqual(sorted(bucket.get_keys()), sorted(ODD_NAMES))

    def test_what_is_deleted_is_not_listed_and_what_is_written_again_is(self):
        bucket = self.bucket()
        for key in ("a", "b", "c"):
            self.store(bucket, key, b"v", w=REPLICAS)
        bucket.get("b").delete(w=REPLICAS)
        self.assertEqual(sorted(bucket.get_keys()), ["a", "c"])
        self.store(bucket, "b", b"v", w=REPLICAS)
        self.assertEqual(sorted(bucket.get_keys()), ["a", "b", "c"])

    def test_a_key_with_siblings_is_listed_once(self):
        bucket = self.bucket(allow_mult=True)
        for value in (b"a", b"b"):
            self.store(bucket, "k", value, w=REPLICAS)
        self.assertEqual(bucket.get_keys(), ["k"])

    def test_a_stream_that_is_left_early_harms_nobody(self):
        bucket = self.bucket()
        self.fill(bucket, [f"{i}" for i in range(3_000)])
        for _ in range(5):
            wire = self.wire()
            wire.send_message(riak_kv_pb2.RpbListKeysReq(bucket=bucket.name.encode()))
            wire.receive_message()
            wire.socket.close()
        self.assertEqual(len(bucket.get_keys()), 3_000)

    def test_what_cannot_be_listed(self):
        self.assert_refused("Bucket cannot be zero-length", self.client.bucket("").get_keys)
        nope = self.client.bucket("b", bucket_type="nope")
        self.assert_refused("No bucket-type named 'nope'", nope.get_keys)
        self.assert_refused("No bucket-type named 'nope'", list, nope.stream_keys())


class Buckets(Case):
    def setUp(self):
        # A node of three lists buckets only while each of them is on every node; other tests have made smaller ones.
        self.alone_only()
        super().setUp()

    def listed(self):
        """All buckets, after making sure that a whole listing, a stream and its pieces agree."""
        whole = [bucket.name for bucket in self.client.get_buckets()]
        with closing(self.client.stream_buckets()) as stream:
            streamed = [bucket.name for piece in stream for bucket in piece]
        pieces = self.wire().stream_buckets()
        self.assertEqual(len(whole), len(set(whole)))
        self.assertEqual(sorted(streamed), sorted(whole))
        self.assertEqual(sorted(name.decode() for piece in pieces for name in piece), sorted(whole))
        self.assertEqual(pieces[-1], [])
        return set(whole)

    def test_a_bucket_is_there_while_it_holds_a_key(self):
        bucket = self.bucket()
        self.assertNotIn(bucket.name, self.listed())
        for i in range(20):
            self.store(bucket, str(i), b"v", return_body=False, w=REPLICAS)
        self.assertIn(bucket.name, self.listed())
        for i in range(20):
            unread(bucket, str(i)).delete(w=REPLICAS)
        self.assertNotIn(bucket.name, self.listed())

    def test_a_timeout_that_is_long_enough(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v")
        self.assertIn(bucket, self.client.get_buckets(timeout=60_000))

    def test_properties_alone_do_not_make_a_bucket(self):
        bucket = self.bucket(n_val=2)
        self.assertNotIn(bucket.name, self.listed())

    def test_odd_names(self):
        names = {f"{self._testMethodName}{name}" for name in ODD_NAMES}
        for name in names:
            self.store(self.client.bucket(name), "k", b"v", return_body=False, w=REPLICAS)
        self.assertLessEqual(names, self.listed())

    def test_many(self):
        names = {f"{self._testMethodName}-{i:04}" for i in range(2_500)}

        def write(part):
            wire = self.wire()
            for name in part:
                wire.put(name.encode(), b"k", b"v", w=REPLICAS)

        in_order = sorted(names)
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(write, [in_order[start::WRITERS] for start in range(WRITERS)]))
        self.assertLessEqual(names, self.listed())

    def test_a_bucket_type_that_is_not_there(self):
        nope = self.client.bucket_type("nope")
        self.assert_refused("No bucket-type named 'nope'", self.client.get_buckets, bucket_type=nope)
        self.assert_refused("No bucket-type named 'nope'", list, self.client.stream_buckets(bucket_type=nope))
