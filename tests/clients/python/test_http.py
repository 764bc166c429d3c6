"""The same behaviours by HTTP: every test of objects, deletes, siblings and listings once more with a client that
speaks it.

Properties that a test only needs are set by protocol buffers. What the client cannot ask by HTTP is left out, by name.
"""

import gzip
import http.client
import json
import urllib.request

from riak import RiakClient, RiakError

import test_deletes
import test_listings
import test_objects
import test_properties
import test_siblings
from case import Case, connect


class ByHttp:
    """Gives a test's class a client that speaks HTTP."""

    # Tests that are about the other protocol, or about options that the client sends by it alone.
    left_out = ()

    def setUp(self):
        if self._testMethodName in self.left_out:
            self.skipTest("not by HTTP")
        super().setUp()

    def other_client(self):
        client = RiakClient(protocol="http", host=self.server.host, http_port=self.server.http_port)
        self.addCleanup(client.close)
        return client

    def bucket(self, **props):
        bucket = super().bucket()
        if props:
            client = connect(self.server)
            client.bucket(bucket.name).set_properties(props)
            client.close()
        return bucket


class HttpValues(ByHttp, test_objects.Values):
    left_out = (
        # Without the object returned, the client says nothing of what it has stored, nor under which key.
        "test_many_objects_at_once",
        "test_the_server_invents_keys",
    )


class HttpDeletes(ByHttp, test_deletes.Deletes):
    pass


class HttpSiblings(ByHttp, test_siblings.Siblings):
    left_out = (
        # The client has no option for it by HTTP.
        "test_a_head_shows_all_siblings_without_values",
        # Times of HTTP are whole seconds, and all are written in one.
        "test_the_client_s_own_resolver_finds_the_last_written",
    )


class HttpNoFalseSiblings(ByHttp, test_siblings.NoFalseSiblings):
    pass


class HttpKeys(ByHttp, test_listings.Keys):
    # The client puts its own words before the server's.
    left_out = ("test_what_cannot_be_listed",)


class HttpBuckets(ByHttp, test_listings.Buckets):
    # The client puts its own words before the server's.
    left_out = ("test_a_bucket_type_that_is_not_there",)

    def listed(self):
        """All buckets. The client cuts a stream at every brace, which names may have, so that is read without it."""
        whole = [bucket.name for bucket in self.client.get_buckets()]
        url = f"http://{self.server.host}:{self.server.http_port}/buckets?buckets=stream"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = answer.read().decode()
        streamed, at = [], 0
        while at < len(text):
            piece, at = json.JSONDecoder().raw_decode(text, at)
            streamed += piece["buckets"]
        self.assertEqual(len(whole), len(set(whole)))
        self.assertEqual(sorted(streamed), sorted(whole))
        return set(whole)


class HttpProperties(ByHttp, Case):
    """Riak's defaults and every change, in JSON, which has properties that protocol buffers have no field for."""

    ONLY_JSON = {
        "aae_tree_exclude": (False, [True]),
        "consistent": (False, []),
        "dvv_enabled": (False, [True]),
        "node_confirms": (0, [1]),
        "sync_on_write": ("backend", ["one", "all"]),
        "ttl": (0, [3600]),
    }

    def defaults(self, bucket):
        only_json = {name: default for name, (default, _) in self.ONLY_JSON.items()}
        return test_properties.DEFAULTS | only_json | {"name": bucket.name}

    def test_a_bucket_has_riak_s_defaults(self):
        bucket = self.bucket()
        self.assertEqual(bucket.get_properties(), self.defaults(bucket))

    def test_every_property_can_be_changed_and_leaves_the_rest(self):
        only_json = {name: values for name, (_, values) in self.ONLY_JSON.items()}
        for name, values in (test_properties.CHANGES | only_json).items():
            with self.subTest(property=name):
                bucket = self.bucket()
                for value in values:
                    bucket.set_property(name, value)
                    self.assertEqual(bucket.get_properties(), self.defaults(bucket) | {name: value})

    def test_flags_may_be_texts(self):
        bucket = self.bucket()
        bucket.set_property("allow_mult", "true")
        self.assertEqual(bucket.get_property("allow_mult"), True)

    def test_both_protocols_change_the_same(self):
        bucket = self.bucket(n_val=2)
        other = connect(self.server)
        self.addCleanup(other.close)
        self.assertEqual(bucket.get_property("n_val"), 2)
        bucket.set_property("r", "all")
        self.assertEqual(other.bucket(bucket.name).get_property("r"), "all")
        self.assertTrue(bucket.clear_properties())
        self.assertEqual(other.bucket(bucket.name).get_properties(), test_properties.DEFAULTS)

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        bucket = self.bucket(n_val=2)
        for props in ({"n_val": 0}, {"n_val": "three"}, {"w": "some"}, {"no_such": 1}, {"allow_mult": "maybe"}):
            with self.subTest(props=props), self.assertRaises(RiakError):
                bucket.set_properties(props)
        self.assertEqual(bucket.get_properties(), self.defaults(bucket) | {"n_val": 2})


class Http(Case):
    """What the client does not show."""

    def ask(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection(self.server.host, self.server.http_port, timeout=60)
        self.addCleanup(connection.close)
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def test_the_client_finds_what_there_is(self):
        client = RiakClient(protocol="http", host=self.server.host, http_port=self.server.http_port)
        self.addCleanup(client.close)
        self.assertTrue(client.ping())
        status, _, body = self.ask("GET", "/", headers={"Accept": "application/json"})
        self.assertEqual((status, json.loads(body)["riak_kv_wm_buckets"]), (200, "/buckets"))

    def test_what_one_protocol_writes_the_other_reads(self):
        bucket = self.bucket()
        status, _, _ = self.ask(
            "PUT",
            f"/buckets/{bucket.name}/keys/k%2F1",
            "v",
            {
                "Content-Type": "text/plain; charset=utf-8",
                "X-Riak-Meta-Color": "blue",
                "X-Riak-Index-age_int": "42, 7",
                "Link": '</buckets/b/keys/k>; riaktag="t"',
            },
        )
        self.assertEqual(status, 204)
        got = bucket.get("k/1")
        self.assertEqual((got.encoded_data, got.content_type, got.charset), (b"v", "text/plain", "utf-8"))
        self.assertEqual((got.usermeta, got.indexes), ({"Color": "blue"}, {("age_int", 42), ("age_int", 7)}))
        self.assertEqual(got.links, [("b", "k", "t")])
        got.encoded_data = b"w"
        got.store()
        status, headers, body = self.ask("GET", f"/riak/{bucket.name}/k%2F1")
        self.assertEqual((status, body, headers["x-riak-meta-color"]), (200, b"w", "blue"))
        self.assertEqual(headers["etag"], f'"{got.siblings[0].etag}"')

    def test_user_metadata_has_the_same_names_on_both_sides(self):
        bucket = self.bucket()
        written = bucket.new("k", encoded_data=b"v", content_type="text/plain")
        written.usermeta = {"Mixed-Case": "a", "x": "b"}
        written.store()
        _, headers, _ = self.ask("GET", f"/buckets/{bucket.name}/keys/k")
        self.assertEqual((headers["x-riak-meta-mixed-case"], headers["x-riak-meta-x"]), ("a", "b"))
        path = f"/buckets/{bucket.name}/keys/h"
        self.ask("PUT", path, "v", {"Content-Type": "text/plain", "x-RIAK-meta-Mixed-Case": "c"})
        self.assertEqual(bucket.get("h").usermeta, {"Mixed-Case": "c"})

    def test_where_an_object_is_kept(self):
        status, _, body = self.ask("GET", "/buckets/b/keys/k/preflist")
        entries = json.loads(body)["preflist"]
        self.assertEqual((status, len(entries)), (200, 3))
        told = self.client.bucket("b").get_preflist("k")
        self.assertEqual([entry["partition"] for entry in entries], [entry["partition"] for entry in told])

    def test_conditions(self):
        bucket = self.bucket()
        path = f"/buckets/{bucket.name}/keys/k"

        def put(value, **conditions):
            named = {name.replace("_", "-"): text for name, text in conditions.items()}
            return self.ask("PUT", path, value, named | {"Content-Type": "text/plain"})[0]

        self.assertEqual(put("a", If_Match="*"), 412)
        self.assertEqual(put("a", If_None_Match="*"), 204)
        self.assertEqual(put("b", If_None_Match="*"), 412)
        _, headers, _ = self.ask("GET", path)
        tag, context = headers["etag"], headers["x-riak-vclock"]
        self.assertEqual(self.ask("GET", path, headers={"If-None-Match": tag})[0], 304)
        self.assertEqual(put("b", If_Match=tag, X_Riak_Vclock=context), 204)
        self.assertEqual(put("c", If_Match=tag), 412)
        self.assertEqual(put("c", X_Riak_If_Not_Modified=context), 409)
        self.assertEqual(self.ask("DELETE", path, headers={"If-Match": tag})[0], 412)
        self.assertEqual(self.ask("GET", path)[2], b"b")

    def test_values_are_compressed_for_those_who_prefer_it(self):
        bucket = self.bucket()
        path, value = f"/buckets/{bucket.name}/keys/k", b"all work and no play " * 500
        self.ask("PUT", path, value, {"Content-Type": "text/plain"})
        status, headers, body = self.ask("GET", path, headers={"Accept-Encoding": "gzip, deflate"})
        self.assertEqual((status, headers["content-encoding"]), (200, "gzip"))
        self.assertLess(len(body), 1000)
        self.assertEqual(gzip.decompress(body), value)
        status, headers, body = self.ask("GET", path)
        self.assertEqual((status, headers.get("content-encoding"), body), (200, None, value))
        packed = gzip.compress(value)
        self.ask("PUT", path, packed, {"Content-Type": "text/plain", "Content-Encoding": "gzip"})
        status, headers, body = self.ask("GET", path, headers={"Accept-Encoding": "gzip"})
        self.assertEqual((status, headers["content-encoding"], body), (200, "gzip", packed))
        self.assertEqual(self.ask("GET", path, headers={"Accept-Encoding": "identity"})[0], 406)

    def test_pages_of_other_sites_write_nothing(self):
        bucket = self.bucket()
        path, plain = f"/buckets/{bucket.name}/keys/k", {"Content-Type": "text/plain"}
        self.assertEqual(self.ask("PUT", path, "v", plain | {"Referer": "http://elsewhere/page"})[0], 403)
        self.assertEqual(self.ask("PUT", path, "v", plain | {"Origin": "null"})[0], 403)
        here = f"http://{self.server.host}:{self.server.http_port}/buckets"
        self.assertEqual(self.ask("PUT", path, "v", plain | {"Referer": here})[0], 204)

    def test_the_server_invents_keys(self):
        bucket = self.bucket()
        path = f"/buckets/{bucket.name}/keys"
        places = [self.ask("POST", path, "v", {"Content-Type": "text/plain"})[1]["location"] for _ in range(20)]
        self.assertEqual(len(set(places)), 20)
        for place in places:
            self.assertRegex(place, f"^{path}/[0-9A-Za-z]{{27}}$")
            self.assertEqual(self.ask("GET", place)[2], b"v")

    def test_quorums_that_cannot_be(self):
        status, _, body = self.ask("GET", "/buckets/b/keys/k?r=9")
        self.assertEqual(status, 400)
        self.assertEqual(body, b"Specified w/dw/pw/node_confirms values invalid for bucket n value of 3\n")

    def test_the_clients_errors_are_its_own(self):
        client = RiakClient(protocol="http", host=self.server.host, http_port=self.server.http_port)
        self.addCleanup(client.close)
        with self.assertRaises(RiakError):
            client.get(client.bucket("b").new("k"), r=9)
