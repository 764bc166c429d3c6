"""Options that the client's methods have no argument for, in the client's messages."""

from riak.pb import riak_kv_pb2, riak_pb2

from case import REPLICAS, Case
from wire import ServerError, error_text, put_request

B = b"wire-options"


class WireOptions(Case):
    def setUp(self):
        super().setUp()
        self.node = self.wire()
        self.key = self._testMethodName.encode()

    def put(self, value, **options):
        return self.node.put(B, self.key, value, **options)

    def get(self, **options):
        return self.node.get(B, self.key, **options)

    def refused(self, text, function, *args, **options):
        with self.assertRaises(ServerError) as raised:
            function(*args, **options)
        self.assertEqual(str(raised.exception), text)

    def test_if_modified_answers_unchanged_and_nothing_else(self):
        first = self.put(b"1", return_body=True).vclock
        answer = self.get(if_modified=first)
        self.assertTrue(answer.unchanged)
        self.assertEqual((len(answer.content), answer.HasField("vclock")), (0, False))
        self.put(b"2", vclock=first)
        answer = self.get(if_modified=first)
        self.assertFalse(answer.unchanged)
        self.assertEqual([content.value for content in answer.content], [b"2"])

    def test_if_not_modified_needs_the_clock_that_is_stored(self):
        self.refused("notfound", self.put, b"0", if_not_modified=True)
        first = self.put(b"1", return_body=True).vclock
        self.refused("modified", self.put, b"2", if_not_modified=True)
        self.put(b"2", vclock=first, if_not_modified=True)
        self.refused("modified", self.put, b"3", vclock=first, if_not_modified=True)
        self.assertEqual([content.value for content in self.get().content], [b"2"])

    def test_return_head_is_the_object_without_its_values(self):
        pair = riak_pb2.RpbPair(key=b"a", value=b"1")
        content = {"content_type": b"text/plain", "usermeta": [pair]}
        answer = self.put(b"v", content=content, return_head=True)
        self.assertEqual(len(answer.content), 1)
        head = answer.content[0]
        self.assertEqual((head.value, head.content_type), (b"", b"text/plain"))
        self.assertEqual([(pair.key, pair.value) for pair in head.usermeta], [(b"a", b"1")])
        self.assertEqual(self.get().content[0].value, b"v")

    def test_a_write_returns_nothing_unless_it_is_asked_to(self):
        answer = self.put(b"v")
        self.assertEqual((len(answer.content), answer.HasField("vclock"), answer.HasField("key")), (0, False, False))

    def test_asis_keeps_the_clock(self):
        source = self.put(b"v", return_body=True)
        self.node.put(B, self.key + b"-copy", b"v", vclock=source.vclock, asis=True)
        self.assertEqual(self.node.get(B, self.key + b"-copy").vclock, source.vclock)

    def test_a_request_may_ask_for_fewer_replicas(self):
        self.put(b"v", n_val=1, sloppy_quorum=False)
        self.assertEqual(self.get(n_val=2, sloppy_quorum=False).content[0].value, b"v")
        self.refused("{n_val_violation,2}", self.get, n_val=2, r=3)
        self.refused("{n_val_violation,9}", self.get, n_val=9)
        # As in Riak, a write is not refused for it but has the bucket's.
        self.put(b"w", n_val=9)

    def test_one_node_cannot_confirm_for_two(self):
        self.alone_only()
        # The client's messages are older than this field: 14 in a read, 17 in a write.
        get = riak_kv_pb2.RpbGetReq(bucket=B, key=self.key).SerializeToString() + b"\x70"
        put = put_request(B, self.key, b"v").SerializeToString() + b"\x88\x01"
        for code, request in ((9, get), (11, put)):
            self.node.send(code, request + b"\x01")
            self.node.receive_message()
            self.node.send(code, request + b"\x02")
            self.assertEqual(error_text(self.node.receive()), "{node_confirms_val_unsatisfied,2,1}")
            self.node.send(code, request + b"\x04")
            self.assertEqual(error_text(self.node.receive()), "{n_val_violation,3}")

    def test_the_default_type_may_be_named(self):
        self.put(b"v", type=b"default")
        self.assertEqual(self.get().content[0].value, b"v")
        self.assertEqual(self.get(type=b"default").content[0].value, b"v")

    def test_a_timeout_of_zero_is_none(self):
        self.put(b"v", timeout=0)
        self.assertEqual(self.get(timeout=0).content[0].value, b"v")
        self.node.delete(B, self.key, timeout=0)

    def test_what_is_not_said_of_a_value_is_not_answered(self):
        self.put(b"v")
        content = self.get().content[0]
        for field in ("content_type", "charset", "content_encoding", "deleted"):
            with self.subTest(field=field):
                self.assertFalse(content.HasField(field))
        for field in ("vtag", "last_mod", "last_mod_usecs"):
            with self.subTest(field=field):
                self.assertTrue(content.HasField(field))

    def test_vtag_and_times_are_the_server_s_to_choose(self):
        chosen = {"vtag": b"mine", "last_mod": 1, "last_mod_usecs": 1, "deleted": True}
        self.put(b"v", content=chosen)
        content = self.get().content[0]
        self.assertNotEqual(content.vtag, b"mine")
        self.assertGreater(content.last_mod, 1_600_000_000)
        self.assertFalse(content.deleted)
        self.assertEqual(content.value, b"v")

    def test_user_metadata_may_be_any_bytes(self):
        pairs = [riak_pb2.RpbPair(key=b"\xff\0", value=bytes(range(256))), riak_pb2.RpbPair(key=b"", value=b"")]
        self.put(b"v", content={"usermeta": pairs})
        got = self.get().content[0].usermeta
        self.assertEqual([(p.key, p.value) for p in got], [(p.key, p.value) for p in pairs])

    def test_index_fields_and_their_errors(self):
        def put(*entries):
            pairs = [riak_pb2.RpbPair(key=field, value=term) for field, term in entries]
            return self.put(b"v", content={"indexes": pairs})

        good = [(b"f_bin", bytes(range(256))), (b"n_int", b"-5"), (b"n_int", b"9")]
        put(*good)
        self.assertEqual(sorted((p.key, p.value) for p in self.get().content[0].indexes), sorted(good))
        bad = '{precommit_fail,[{field_parsing_failed,{<<"n_int">>,<<"1.5">>}}]}'
        self.refused(bad, put, (b"f_bin", b"x"), (b"n_int", b"1.5"))
        self.refused('{precommit_fail,[{unknown_field_type,<<"f">>}]}', put, (b"f", b"x"))
        self.assertEqual(len(self.get().content[0].indexes), 3)

    def test_names_may_be_any_bytes(self):
        names = [b"\xff", b"\0", b"\0\0", b"\0\xff", b"\xff\xfe\xfd", bytes(range(256)), b"\xc3\x28", b"\xff" * 300]
        buckets = [B + name for name in names]
        for bucket in buckets:
            for name in names:
                self.node.put(bucket, name, bucket + b"|" + name, w=REPLICAS)
        for bucket in buckets:
            for name in names:
                self.assertEqual(self.node.get(bucket, name).content[0].value, bucket + b"|" + name)
        listed = [self.node.list_keys(bucket) for bucket in buckets]
        for bucket in buckets:
            for name in names:
                # The client cannot list buckets while there is one that is not UTF-8.
                self.node.delete(bucket, name)
        for pieces in listed:
            self.assertEqual(sorted(name for piece in pieces for name in piece), sorted(names))

    def test_fields_the_server_does_not_know_are_skipped(self):
        self.put(b"v")
        request = riak_kv_pb2.RpbGetReq(bucket=B, key=self.key).SerializeToString()
        self.node.send(9, request + b"\x9a\x06\x01x")
        self.assertEqual(self.node.receive_message().content[0].value, b"v")
