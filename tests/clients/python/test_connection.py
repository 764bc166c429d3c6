"""What concerns the connection and the node: ping, server info, client ids, and that HTTP is there."""

import http.client
import json

from riak.pb import riak_kv_pb2

from case import Case, connect
from server import HOST


class Connection(Case):
    def test_ping(self):
        self.assertIs(self.client.ping(), True)
        self.assertIs(self.client.is_alive(), True)

    def test_server_info_names_the_node_and_a_version_of_three_numbers(self):
        with self.client._transport() as transport:
            info = transport.get_server_info()
        self.assertRegex(info["node"], r"^[^@]+@[^@]+$")
        self.assertRegex(info["server_version"], r"^\d+\.\d+\.\d+$")

    def test_the_version_turns_all_of_the_client_s_features_on(self):
        # The client asks the server's version before it sends an option; one below 2.1.2 costs half of them.
        with self.client._transport() as transport:
            for feature in (
                "client_timeouts",
                "quorum_controls",
                "tombstone_vclocks",
                "bucket_types",
                "bucket_stream",
                "pb_all_bucket_props",
                "pb_clear_bucket_props",
                "pb_head",
                "preflists",
                "write_once",
            ):
                with self.subTest(feature=feature):
                    self.assertIs(getattr(transport, feature)(), True)

    def test_a_client_id_is_kept_for_its_connection(self):
        with self.client._transport() as transport:
            self.assertEqual(transport.client_id, "\0\0\0\0")
            transport.client_id = "abcd"
            self.assertEqual(transport.client_id, "abcd")
        with self.other_client()._transport() as transport:
            self.assertEqual(transport.client_id, "\0\0\0\0")

    def test_a_client_id_may_be_any_bytes(self):
        wire = self.wire()
        wire.ask(riak_kv_pb2.RpbSetClientIdReq(client_id=b"\xff\0\xfe"))
        wire.send(3)
        self.assertEqual(wire.receive_message().client_id, b"\xff\0\xfe")

    def test_a_preference_list_has_n_val_primaries_of_this_node(self):
        self.alone_only()
        bucket = self.bucket(n_val=2)
        with self.client._transport() as transport:
            node = transport.get_server_info()["node"]
        places = self.client.get_preflist(bucket, "k")
        self.assertEqual(len(places), 2)
        for place in places:
            self.assertEqual((place["node"], place["primary"]), (node, True))

    def test_many_connections_at_once(self):
        wires = [self.wire() for _ in range(100)]
        for wire in wires:
            wire.send(1)
        self.assertEqual([wire.receive() for wire in wires], [(2, b"")] * 100)

    def test_a_client_that_is_closed_leaves_the_node_as_it_was(self):
        for _ in range(20):
            client = connect(self.server)
            self.assertTrue(client.ping())
            client.close()
        self.assertTrue(self.client.ping())


class Http(Case):
    def get(self, path):
        connection = http.client.HTTPConnection(HOST, self.server.http_port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def test_ping(self):
        self.assertEqual(self.get("/ping"), (200, b"OK"))

    def test_stats_are_an_object_of_json(self):
        status, body = self.get("/stats")
        self.assertEqual(status, 200)
        self.assertIsInstance(json.loads(body), dict)
