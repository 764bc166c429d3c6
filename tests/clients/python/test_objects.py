"""Objects: values, metadata, the options of reads and writes."""

import hashlib
import random
import time

from riak import RiakError
from riak.riak_object import RiakObject

from case import REPLICAS, Case, new, unread

# Names that are UTF-8 and may still trip whoever takes them apart.
ODD_NAMES = [
    " ",
    "with space",
    "tab\tand\nline",
    "a/b//c/",
    "../..",
    "nul\0inside",
    "\0",
    "\x01\x02\x7f",
    "%2F%00",
    "grüße-日本-\U0001f600",
    "{\"json\": [1]}",
    "$key",
    "\"quoted\\",
    "x" * 2000,
]

QUORUMS = ["default", "one", "quorum", "all", 1, 2, 3]


class Values(Case):
    def test_a_key_that_was_never_written_is_not_there(self):
        got = self.bucket().get("nothing")
        self.assertFalse(got.exists)
        self.assertEqual((got.siblings, got.vclock, got.data), ([], None, None))

    def test_json_text_and_bytes_come_back(self):
        bucket = self.bucket()
        for key, content_type, data in (
            ("json", "application/json", {"a": [1, 2.5, None, True], "ü": "日本"}),
            ("text", "text/plain", "grüße"),
            ("bytes", "binary/octet-stream", bytes(range(256))),
        ):
            with self.subTest(content_type=content_type):
                bucket.new(key, data=data, content_type=content_type).store()
                got = bucket.get(key)
                self.assertTrue(got.exists)
                self.assertEqual((got.data, got.content_type), (data, content_type))

    def test_a_write_replaces_the_value_and_moves_the_clock(self):
        bucket = self.bucket()
        stored = self.store(bucket, "k", b"first")
        before = stored.vclock.encode("binary")
        stored.encoded_data = b"second"
        stored.store()
        self.assertNotEqual(stored.vclock.encode("binary"), before)
        self.assertEqual(self.values(bucket, "k"), [b"second"])

    def test_a_write_need_not_return_the_object(self):
        bucket = self.bucket()
        stored = self.store(bucket, "k", b"v", return_body=False)
        self.assertIsNone(stored.vclock)
        self.assertEqual(stored.reload().encoded_data, b"v")
        self.assertIsNotNone(stored.vclock)

    def test_the_server_invents_keys(self):
        bucket = self.bucket()
        keys = [self.store(bucket, None, str(i).encode(), return_body=i % 2 == 0).key for i in range(20)]
        self.assertEqual(len(set(keys)), 20)
        for i, key in enumerate(keys):
            self.assertRegex(key, r"^[0-9A-Za-z]{27}$")
            self.assertEqual(self.values(bucket, key), [str(i).encode()])

    def test_odd_names_name_different_objects(self):
        buckets = [self.client.bucket(f"{self._testMethodName}{name}") for name in ODD_NAMES]
        for bucket in buckets:
            for name in ODD_NAMES:
                self.store(bucket, name, f"{bucket.name}|{name}".encode(), return_body=False)
        for bucket in buckets:
            for name in ODD_NAMES:
                self.assertEqual(self.values(bucket, name), [f"{bucket.name}|{name}".encode()])

    def test_sizes_around_every_boundary(self):
        bucket = self.bucket()
        noise = random.Random(7).randbytes(1 << 21)
        edges = [1 << power for power in (0, 6, 9, 10, 12, 13, 15, 16, 17, 20)]
        for size in sorted({0} | {edge + off for edge in edges for off in (-1, 0, 1)}):
            with self.subTest(size=size):
                stored = self.store(bucket, str(size), noise[:size])
                self.assertEqual(stored.encoded_data, noise[:size])
                self.assertEqual(bucket.get(str(size)).encoded_data, noise[:size])

    def test_an_empty_value_is_a_value(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"")
        got = bucket.get("k")
        self.assertTrue(got.exists)
        self.assertEqual(got.encoded_data, b"")

    def test_large_values(self):
        bucket = self.bucket()
        for megabytes in (1, 20):
            with self.subTest(megabytes=megabytes):
                value = random.Random(megabytes).randbytes(megabytes << 20)
                returned = self.store(bucket, "large", value).encoded_data
                got = bucket.get("large").encoded_data
                digest = hashlib.sha256(value).hexdigest()
                self.assertEqual(hashlib.sha256(returned).hexdigest(), digest)
                self.assertEqual(hashlib.sha256(got).hexdigest(), digest)

    def test_many_objects_at_once(self):
        bucket = self.bucket()
        objects = [new(bucket, f"k{i}", str(i).encode()) for i in range(200)]
        for result in self.client.multiput(objects, return_body=False):
            self.assertIsInstance(result, RiakObject)
        got = bucket.multiget([f"k{i}" for i in range(200)] + ["nothing"])
        self.assertEqual({o.key: o.encoded_data for o in got if o.exists}, {f"k{i}": str(i).encode() for i in range(200)})
        self.assertEqual([o.key for o in got if not o.exists], ["nothing"])


class Metadata(Case):
    def test_all_that_is_said_of_a_value_comes_back(self):
        bucket = self.bucket()
        stored = new(bucket, "k", b"\x1f\x8b...", content_type="text/csv")
        stored.charset = "iso-8859-15"
        stored.content_encoding = "gzip"
        stored.usermeta = {"Color": "blue", "empty": "", "ü": "日本", "long": "x" * 5000}
        stored.links = [("b1", "k1", "friend"), ("b1", "k1", "foe"), ("ü", "k/2", "日本")]
        for entry in (("age_int", 42), ("age_int", -7), ("name_bin", "Ann"), ("name_bin", "ü"), ("big_int", 2**63 - 1)):
            stored.add_index(*entry)
        expected = self.described(stored)
        stored.store()
        self.assertEqual(self.described(stored), expected)
        self.assertEqual(self.described(bucket.get("k")), expected)
        self.assertEqual(self.described(bucket.get("k", head_only=True)), expected | {"value": b""})

    def described(self, stored):
        return {
            "value": stored.encoded_data,
            "type": (stored.content_type, stored.charset, stored.content_encoding),
            "meta": dict(stored.usermeta),
            "links": list(stored.links),
            "indexes": set(stored.indexes),
        }

    def test_a_link_without_a_tag_has_an_empty_one(self):
        bucket = self.bucket()
        stored = new(bucket, "k", b"v")
        stored.add_link(bucket.new("other"))
        stored.store()
        self.assertEqual(bucket.get("k").links, [(bucket.name, "other", "")])

    def test_metadata_belongs_to_its_value(self):
        bucket = self.bucket()
        stored = new(bucket, "k", b"v1")
        stored.usermeta = {"a": "1"}
        stored.add_index("a_bin", "1")
        stored.store()
        self.store(bucket, "k", b"v2")
        got = bucket.get("k")
        self.assertEqual((got.encoded_data, got.usermeta, got.indexes), (b"v2", {}, set()))

    def test_index_entries_can_be_replaced_and_removed(self):
        bucket = self.bucket()
        stored = new(bucket, "k", b"v").add_index("f_bin", "a").add_index("f_bin", "b").store()
        stored.remove_index("f_bin", "a").store()
        self.assertEqual(bucket.get("k").indexes, {("f_bin", "b")})
        stored.set_index("f_bin", "c").store()
        self.assertEqual(bucket.get("k").indexes, {("f_bin", "c")})
        stored.remove_indexes().store()
        self.assertEqual(bucket.get("k").indexes, set())

    def test_the_time_of_a_write_is_now_and_never_goes_back(self):
        bucket = self.bucket()
        before = time.time()
        times = [self.store(bucket, "k", str(i).encode()).last_modified for i in range(20)]
        # The file system, the clock and the client round differently: a second is granted.
        self.assertGreaterEqual(times[0], before - 1)
        self.assertLessEqual(times[-1], time.time() + 1)
        self.assertEqual(times, sorted(times))
        self.assertEqual(bucket.get("k").last_modified, times[-1])

    def test_each_write_has_a_tag_of_its_own(self):
        bucket = self.bucket()
        tags = [self.store(bucket, "k", b"the same").etag for _ in range(5)]
        self.assertEqual(len(set(tags)), 5)
        self.assertEqual([bucket.get("k").etag for _ in range(2)], [tags[-1]] * 2)

    def test_an_index_entry_that_is_no_integer_is_refused(self):
        bucket = self.bucket()
        bad = new(bucket, "k", b"v").add_index("n_int", "abc")
        self.assert_refused('{precommit_fail,[{field_parsing_failed,{<<"n_int">>,<<"abc">>}}]}', bad.store)
        self.assertFalse(bucket.get("k").exists)


class Options(Case):
    def test_every_quorum_is_met_by_one_node(self):
        bucket = self.bucket()
        for quorum in QUORUMS:
            with self.subTest(quorum=quorum):
                self.store(bucket, "k", b"v", w=quorum, dw=quorum, pw=quorum)
                got = bucket.get("k", r=quorum, pr=quorum)
                self.assertEqual(got.encoded_data, b"v")

    def test_a_quorum_beyond_n_val_is_refused(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v")
        for name in ("w", "dw", "pw"):
            with self.subTest(name=name):
                self.assert_refused("{n_val_violation,3}", self.store, bucket, "k", b"bad", **{name: 4})
        for name in ("r", "pr"):
            with self.subTest(name=name):
                self.assert_refused("{n_val_violation,3}", bucket.get, "k", **{name: 4})
        for name in ("rw", "r", "w", "dw", "pr", "pw"):
            with self.subTest(delete=name):
                got = bucket.get("k")
                self.assert_refused("{n_val_violation,3}", self.client.delete, got, **{name: 4})
        self.assertEqual(self.values(bucket, "k"), [b"v"])

    def test_quorums_are_counted_in_the_bucket_s_n_val(self):
        bucket = self.bucket(n_val=1)
        self.store(bucket, "k", b"v", w=1)
        self.assert_refused("{n_val_violation,1}", self.store, bucket, "k", b"bad", w=2)

    def test_the_options_for_a_key_that_is_not_there(self):
        bucket = self.bucket()
        for basic_quorum in (True, False):
            for notfound_ok in (True, False):
                got = unread(bucket, "nothing")
                self.client.get(got, basic_quorum=basic_quorum, notfound_ok=notfound_ok)
                self.assertFalse(got.exists)

    def test_if_none_match_writes_once(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"first", if_none_match=True)
        self.assert_refused("match_found", self.store, bucket, "k", b"second", if_none_match=True)
        self.assertEqual(self.values(bucket, "k"), [b"first"])
        bucket.get("k").delete()
        self.store(bucket, "k", b"third", if_none_match=True)
        self.assertEqual(self.values(bucket, "k"), [b"third"])

    def test_timeouts_that_are_long_enough(self):
        bucket = self.bucket()
        stored = self.store(bucket, "k", b"v", timeout=60_000, w=REPLICAS)
        self.assertEqual(stored.reload(timeout=60_000).encoded_data, b"v")
        self.assertEqual(self.client.get_keys(bucket, timeout=60_000), ["k"])
        stored.delete(timeout=60_000)
        self.assertFalse(bucket.get("k", timeout=60_000).exists)

    def test_head_only_leaves_the_value_out(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v" * 100_000)
        got = bucket.get("k", head_only=True)
        self.assertTrue(got.exists)
        self.assertEqual(got.encoded_data, b"")
        self.assertFalse(bucket.get("nothing", head_only=True).exists)

    def test_a_bucket_type_that_is_not_there_is_refused(self):
        bucket = self.client.bucket("b", bucket_type="nope")
        one = unread(bucket, "k")
        self.assert_refused("no_type", one.reload)
        self.assert_refused("no_type", self.client.delete, one)
        one.encoded_data = b"v"
        self.assert_refused("no_type", one.store)

    def test_names_of_zero_length_are_refused(self):
        nameless = self.client.bucket("")
        self.assert_refused("Bucket cannot be zero-length", nameless.get, "k")
        self.assert_refused("Bucket cannot be zero-length", self.store, nameless, "k", b"v")
        with self.assertRaises(ValueError):
            self.bucket().get("")

    def test_long_names(self):
        bucket = self.bucket()
        self.store(bucket, "k" * 65_535, b"v")
        self.assertEqual(self.values(bucket, "k" * 65_535), [b"v"])
        with self.assertRaisesRegex(RiakError, "key of 65536 bytes, 65535 allowed"):
            self.store(bucket, "k" * 65_536, b"v")
        long = self.client.bucket("b" * 65_535)
        self.store(long, "k", b"v").delete()
        with self.assertRaisesRegex(RiakError, "bucket of 65536 bytes, 65535 allowed"):
            self.store(self.client.bucket("b" * 65_536), "k", b"v")

    def test_too_much_metadata_is_refused(self):
        bucket = self.bucket()
        heavy = new(bucket, "k", b"v")
        heavy.usermeta = {"a": "x" * (256 << 10)}
        with self.assertRaisesRegex(RiakError, "metadata of [0-9]+ bytes, 262144 allowed"):
            heavy.store()
        self.assertFalse(bucket.get("k").exists)
