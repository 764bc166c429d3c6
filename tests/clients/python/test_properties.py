"""Bucket properties: read, changed, refused, reset."""

import riak

from case import Case

DEFAULTS = {
    "n_val": 3,
    "allow_mult": False,
    "last_write_wins": False,
    "precommit": [],
    "postcommit": [],
    "chash_keyfun": {"mod": "riak_core_util", "fun": "chash_std_keyfun"},
    "linkfun": {"mod": "riak_kv_wm_link_walker", "fun": "mapreduce_linkfun"},
    "old_vclock": 86_400,
    "young_vclock": 20,
    "big_vclock": 50,
    "small_vclock": 50,
    "pr": 0,
    "r": "quorum",
    "w": "quorum",
    "pw": 0,
    "dw": "quorum",
    "rw": "quorum",
    "basic_quorum": False,
    "notfound_ok": True,
    "repl": True,
    "write_once": False,
}

CHANGES = {
    "n_val": [1, 2, 5],
    "allow_mult": [True, False],
    "last_write_wins": [True],
    "precommit": [[{"mod": "m", "fun": "f"}], [{"name": "js"}, {"mod": "m", "fun": "f"}], []],
    "postcommit": [[{"mod": "m", "fun": "f"}], []],
    "chash_keyfun": [{"mod": "riak_core_util", "fun": "chash_bucketonly_keyfun"}],
    "linkfun": [{"mod": "m", "fun": "f"}],
    "old_vclock": [1],
    "young_vclock": [2],
    "big_vclock": [3],
    "small_vclock": [4],
    "pr": [1, "one", "quorum", "all"],
    "r": [1, "one", "quorum", "all"],
    "w": [2, "one"],
    "pw": [3, "all"],
    "dw": [1, "quorum"],
    "rw": [1, "one"],
    "basic_quorum": [True],
    "notfound_ok": [False],
    "search": [False],
    "search_index": ["_dont_index_"],
    "repl": [False, "realtime", "fullsync", True],
    "hll_precision": [4, 16],
}


class Properties(Case):
    def test_a_bucket_has_riak_s_defaults(self):
        self.assertEqual(self.bucket().get_properties(), DEFAULTS)

    def test_every_property_can_be_changed_and_leaves_the_rest(self):
        for name, values in CHANGES.items():
            with self.subTest(property=name):
                bucket = self.bucket()
                for value in values:
                    bucket.set_property(name, value)
                    self.assertEqual(bucket.get_properties(), DEFAULTS | {name: value})

    def test_several_at_once(self):
        changes = {name: values[0] for name, values in CHANGES.items()}
        # No quorum may be above the number of copies.
        changes["n_val"] = 5
        bucket = self.bucket(**changes)
        self.assertEqual(bucket.get_properties(), DEFAULTS | changes)

    def test_the_client_s_shorthands(self):
        bucket = self.bucket()
        bucket.allow_mult = True
        bucket.n_val = 2
        bucket.r = "one"
        self.assertEqual((bucket.allow_mult, bucket.n_val, bucket.r), (True, 2, "one"))

    def test_other_buckets_keep_theirs(self):
        self.bucket(allow_mult=True, n_val=1)
        self.assertEqual(self.bucket().get_properties(), DEFAULTS)

    def test_a_change_is_seen_by_every_connection_at_once(self):
        bucket = self.bucket()
        others = [self.other_client().bucket(bucket.name) for _ in range(8)]
        for i in range(1, 11):
            bucket.n_val = i
            self.assertEqual([other.n_val for other in others], [i] * 8)

    def test_a_reset_gives_the_defaults_again(self):
        bucket = self.bucket(allow_mult=True, n_val=2, precommit=[{"name": "js"}])
        self.assertTrue(bucket.clear_properties())
        self.assertEqual(bucket.get_properties(), DEFAULTS)
        self.assertTrue(bucket.clear_properties())
        self.assertEqual(bucket.get_properties(), DEFAULTS)

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        bucket = self.bucket(n_val=2)
        for props, reasons in (
            ({"n_val": 0}, "[{n_val,not_integer}]"),
            ({"allow_mult": True, "n_val": 0}, "[{n_val,not_integer}]"),
            ({"datatype": "set"}, '[{datatype,"set not supported for bucket datatype property"}]'),
        ):
            with self.subTest(props=props):
                self.assert_refused(f"Invalid bucket properties: {reasons}", bucket.set_properties, props)
        self.assertEqual(bucket.get_properties(), DEFAULTS | {"n_val": 2})

    def test_what_is_not_there_is_refused(self):
        bucket = self.bucket()
        for name, value in (
            ("backend", "multi"),
            ("search", True),
            ("search_index", "an index"),
            ("chash_keyfun", {"mod": "m", "fun": "f"}),
        ):
            with self.subTest(property=name), self.assertRaises(riak.RiakError) as refused:
                bucket.set_property(name, value)
            self.assertIn(f"Invalid bucket properties: [{{{name},", str(refused.exception))
        self.assertEqual(bucket.get_properties(), DEFAULTS)

    def test_a_precommit_hook_fails_writes(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v")
        bucket.set_property("precommit", [{"mod": "m", "fun": "f"}])
        text = "{precommit_fail,{hook_crashed,{m,f,error,undef}}}"
        self.assert_refused(text, self.store, bucket, "k", b"w")
        self.assert_refused(text, bucket.delete, "k")
        self.assertEqual(bucket.get("k").encoded_data, b"v")

    def test_odd_names_have_properties_too(self):
        for name in ("with space", "a/b", "nul\0inside", "ü日本", "\x7f", "x" * 5000):
            with self.subTest(name=name):
                bucket = self.client.bucket(f"{self._testMethodName}{name}")
                bucket.set_property("n_val", 4)
                self.assertEqual(bucket.get_properties(), DEFAULTS | {"n_val": 4})
                bucket.clear_properties()

    def test_they_hold_for_the_requests_that_follow(self):
        bucket = self.bucket(r=3, w=3, n_val=3)
        self.store(bucket, "k", b"v")
        bucket.n_val = 2
        # Three of two cannot be met, whoever asks for it.
        self.assert_refused("{n_val_violation,2}", bucket.get, "k")
        self.assert_refused("{n_val_violation,2}", self.store, bucket, "k", b"v")
        self.assertEqual(bucket.get("k", r=2).encoded_data, b"v")

    def test_a_bucket_type_that_is_not_there(self):
        bucket = self.client.bucket("b", bucket_type="nope")
        no_type = "No bucket-type named 'nope'"
        self.assert_refused(no_type, bucket.get_properties)
        self.assert_refused(no_type, bucket.set_properties, {"n_val": 2})
        self.assert_refused(no_type, bucket.clear_properties)
        invalid = 'Invalid bucket type: <<"nope">>'
        self.assert_refused(invalid, bucket.bucket_type.get_properties)
        self.assert_refused(invalid, bucket.bucket_type.set_properties, {"n_val": 2})

    def test_a_nameless_bucket_has_none(self):
        nameless = self.client.bucket("")
        for function in (nameless.get_properties, nameless.clear_properties):
            self.assert_refused("Bucket cannot be zero-length", function)
        self.assert_refused("Bucket cannot be zero-length", nameless.set_properties, {"n_val": 2})
