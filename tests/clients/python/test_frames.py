"""Frames no client should send: each costs at most its own connection."""

import random
import struct

from riak.pb import riak_kv_pb2, riak_pb2

from case import REPLICAS, Case, start_server
from wire import PING, PONG, error_text, put_request

FRAME_BEFORE_FIRST_MAX = 8 << 20
FRAME_MAX = 50 << 20
TOO_LARGE = "Invalid message packet, reason: invalid"
TOO_LARGE_FIRST = "the first request of a connection has at most 8388608 bytes"
MALFORMED = r"^Error processing incoming message: "


class Frames(Case):
    def setUp(self):
        super().setUp()
        self.bystander = self.wire()
        self.assertTrue(self.bystander.ping())

    def tearDown(self):
        self.assertTrue(self.bystander.ping(), "another connection has suffered")
        super().tearDown()

    def assert_stays_open(self, wire, code, body, text):
        wire.send(code, body)
        self.assertEqual(error_text(wire.receive()), text)
        self.assertTrue(wire.ping())

    def assert_closes(self, wire, code, body):
        wire.send(code, body)
        self.assertRegex(error_text(wire.receive()), MALFORMED)
        self.assertIsNone(wire.receive())

    def test_an_unknown_code_keeps_the_connection_open(self):
        wire = self.wire()
        for code in (10, 27, 54, 70, 90, 104, 200, 253, 254):
            with self.subTest(code=code):
                self.assert_stays_open(wire, code, b"", f"Unknown message code: {code}")
        self.assert_stays_open(wire, 200, b"some body", "Unknown message code: 200")

    def test_tls_is_refused_politely(self):
        self.assert_stays_open(self.wire(), 255, b"", "Security not enabled; STARTTLS not allowed.")

    def test_a_malformed_message_closes_its_connection_only(self):
        for name, code, body in (
            ("a length beyond the end", 9, b"\x0a\xff\x01"),
            ("a cut varint", 9, b"\x0a\x01b\x12\x01k\x18\xff"),
            ("a wire type that is none", 9, b"\x0f"),
            ("a field of the wrong type", 9, b"\x08\x01"),
            ("a put without content", 11, b"\x0a\x01b\x12\x01k"),
            ("no bucket", 17, b""),
            ("a ping that says something", 1, b"abc"),
            ("a broken content", 11, b"\x0a\x01b\x12\x01k\x22\x02\x0a\x09"),
        ):
            with self.subTest(name):
                self.assert_closes(self.wire(), code, body)

    def test_a_clock_that_the_server_never_gave_out_closes_the_connection(self):
        for message in (
            riak_kv_pb2.RpbGetReq(bucket=b"b", key=b"k", if_modified=b"junk"),
            put_request(b"b", b"k", b"v", vclock=b"garbage"),
            riak_kv_pb2.RpbDelReq(bucket=b"b", key=b"k", vclock=b"garbage"),
        ):
            with self.subTest(type(message).__name__):
                wire = self.wire()
                wire.send_message(message)
                self.assertRegex(error_text(wire.receive()), MALFORMED)
                self.assertIsNone(wire.receive())

    def test_names_of_zero_length_keep_the_connection_open(self):
        wire = self.wire()
        bucket, key, of_type = (f"{name} cannot be zero-length" for name in ("Bucket", "Key", "Type"))
        props = riak_pb2.RpbBucketProps(n_val=2)
        for message, text in (
            (riak_kv_pb2.RpbGetReq(bucket=b"", key=b"k"), bucket),
            (riak_kv_pb2.RpbGetReq(bucket=b"b", key=b""), key),
            (riak_kv_pb2.RpbGetReq(bucket=b"b", key=b"k", type=b""), of_type),
            (put_request(b"", b"k", b"v"), bucket),
            (put_request(b"b", b"", b"v"), key),
            (put_request(b"b", b"k", b"v", type=b""), of_type),
            (riak_kv_pb2.RpbDelReq(bucket=b"", key=b"k"), bucket),
            (riak_kv_pb2.RpbDelReq(bucket=b"b", key=b""), key),
            (riak_kv_pb2.RpbListKeysReq(bucket=b""), bucket),
            (riak_pb2.RpbGetBucketReq(bucket=b""), bucket),
            (riak_pb2.RpbSetBucketReq(bucket=b"", props=props), bucket),
            (riak_pb2.RpbResetBucketReq(bucket=b""), bucket),
            (riak_pb2.RpbGetBucketTypeReq(type=b""), of_type),
        ):
            with self.subTest(message=type(message).__name__, text=text):
                wire.send_message(message)
                self.assertEqual(error_text(wire.receive()), text)
                self.assertTrue(wire.ping())

    def test_errors_of_requests_keep_the_connection_open(self):
        wire = self.wire()
        wire.put(b"frames", b"k", b"v")
        for message, text in (
            (riak_kv_pb2.RpbGetReq(bucket=b"frames", key=b"k", r=9), "{n_val_violation,3}"),
            (put_request(b"frames", b"k", b"v", w=9), "{n_val_violation,3}"),
            (put_request(b"frames", b"k", b"v", if_none_match=True), "match_found"),
            (put_request(b"frames", b"k", b"v", if_not_modified=True), "modified"),
            (riak_kv_pb2.RpbGetReq(bucket=b"frames", key=b"k", type=b"nope"), "no_type"),
            (riak_pb2.RpbGetBucketTypeReq(type=b"nope"), 'Invalid bucket type: <<"nope">>'),
        ):
            with self.subTest(text):
                wire.send_message(message)
                self.assertEqual(error_text(wire.receive()), text)
                self.assertTrue(wire.ping())

    def test_a_frame_without_a_code_closes(self):
        wire = self.wire()
        wire.send_bytes(b"\0\0\0\0")
        self.assertIsNone(wire.receive())

    def test_a_frame_over_the_limit_closes_before_its_body_is_sent(self):
        for length in (FRAME_MAX + 1, 0x7FFFFFFF, 0xFFFFFFFF):
            with self.subTest(length=length):
                wire = self.wire()
                self.assertTrue(wire.ping())
                wire.send_bytes(struct.pack("!IB", length, 11))
                self.assertEqual(error_text(wire.receive()), TOO_LARGE)
                self.assertIsNone(wire.receive())

    def test_a_stranger_may_send_less_than_an_acquaintance(self):
        wire = self.wire()
        wire.send_bytes(struct.pack("!IB", FRAME_BEFORE_FIRST_MAX + 1, 11))
        self.assertRegex(error_text(wire.receive()), TOO_LARGE_FIRST)
        self.assertIsNone(wire.receive())

    def test_the_largest_frame_is_taken(self):
        wire = self.wire()
        self.assertTrue(wire.ping())
        around = len(put_request(b"frames", b"large", b"").SerializeToString())
        # Two lengths within grow by the bytes that a long value's take more than an empty one's.
        value = bytes(FRAME_MAX - 1 - around - 2 * 3)
        request = put_request(b"frames", b"large", value).SerializeToString()
        self.assertEqual(len(request), FRAME_MAX - 1)
        wire.send(11, request)
        self.assertEqual(wire.receive(), (12, b""))
        self.assertEqual(wire.get(b"frames", b"large").content[0].value, value)
        wire.delete(b"frames", b"large")

    def test_requests_sent_ahead_are_answered_in_order(self):
        wire = self.wire()
        puts = [put_request(b"frames", b"ahead-%d" % i, b"v%d" % i) for i in range(50)]
        gets = [riak_kv_pb2.RpbGetReq(bucket=b"frames", key=b"ahead-%d" % i) for i in range(50)]
        for put, get in zip(puts, gets):
            wire.send_message(put)
            wire.send_message(get)
            wire.send_bytes(PING)
        for i in range(50):
            self.assertEqual(wire.receive(), (12, b""))
            self.assertEqual(wire.receive_message().content[0].value, b"v%d" % i)
            self.assertEqual(wire.receive(), PONG)

    def test_a_request_that_comes_in_crumbs(self):
        wire = self.wire()
        body = put_request(b"frames", b"crumbs", b"v").SerializeToString()
        for byte in struct.pack("!IB", len(body) + 1, 11) + body:
            wire.send_bytes(bytes([byte]))
        self.assertEqual(wire.receive(), (12, b""))

    def test_clients_that_leave_in_the_middle(self):
        body = put_request(b"frames", b"half", b"v" * 10_000).SerializeToString()
        frame = struct.pack("!IB", len(body) + 1, 11) + body
        for cut in (0, 1, 4, 5, 100, len(frame) - 1):
            wire = self.wire()
            wire.send_bytes(frame[:cut])
            wire.socket.close()
        self.assertEqual(len(self.wire().get(b"frames", b"half").content), 0)

    def test_a_listing_ends_before_what_was_sent_after_it_is_answered(self):
        wire = self.wire()
        for i in range(20):
            wire.put(b"frames-listed", b"%d" % i, b"v", w=REPLICAS)
        wire.send_message(riak_kv_pb2.RpbListKeysReq(bucket=b"frames-listed"))
        wire.send_bytes(PING)
        keys = []
        while not (piece := wire.receive_message()).done:
            keys += piece.keys
        self.assertEqual(len(keys), 20)
        self.assertEqual(wire.receive(), PONG)


class Noise(Case):
    """On a node of its own: noise makes buckets whose names the client cannot read."""

    own_nodes = True

    def setUp(self):
        self.server = start_server(self)

    def test_messages_with_a_few_bytes_changed(self):
        rng = random.Random(20)
        sound = [
            riak_kv_pb2.RpbGetReq(bucket=b"noise", key=b"k", r=2).SerializeToString(),
            put_request(b"noise", b"k", b"v", w=2, return_body=True).SerializeToString(),
            riak_pb2.RpbSetBucketReq(bucket=b"noise", props=riak_pb2.RpbBucketProps(n_val=2)).SerializeToString(),
        ]
        codes = [9, 11, 13, 15, 17, 19, 21, 29, 31, 33]
        for _ in range(1_000):
            body = bytearray(rng.choice(sound))
            for _ in range(rng.randint(1, 4)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            with self.wire() as wire:
                wire.send(rng.choice(codes + [rng.randrange(256)]), bytes(body))
                wire.send_bytes(PING)
                # Some answers, the last of them to the ping; or an error and the end.
                while wire.receive() not in (PONG, None):
                    pass
        self.assertEqual(self.server.stop(), 0)

    def test_streams_of_noise(self):
        rng = random.Random(21)
        for _ in range(200):
            with self.wire() as wire:
                self.assertTrue(wire.ping())
                # Lengths that are met, so that the noise is looked at and not waited for; then the end.
                noise = [rng.randbytes(rng.randrange(1, 200)) for _ in range(5)] + [b""]
                wire.send_bytes(b"".join(struct.pack("!I", len(frame)) + frame for frame in noise))
                while wire.receive() is not None:
                    pass
        self.assertEqual(self.server.stop(), 0)
