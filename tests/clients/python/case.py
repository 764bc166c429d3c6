"""What every test has: the node, a client of its own, buckets that no other test uses."""

import itertools
import tempfile
import unittest

from riak import RiakClient, RiakError
from riak.riak_object import RiakObject

from cluster import Cluster, Dev
from server import Server
from wire import Wire

# Of every object. What a node lists is what it has itself: a write that all have confirmed is listed by each.
REPLICAS = 3

_node = {}
_numbers = itertools.count(1)


def use(binary, server, nodes=1):
    """Says which node the tests are about, one of so many, and from which binary others are started."""
    _node.update(binary=binary, server=server, nodes=nodes)


def binary():
    """The program that the tests are about."""
    return _node["binary"]


def _started(test, make):
    """What `make` makes of the binary and a folder, started; both end with the test."""
    folder = tempfile.TemporaryDirectory(prefix="annulet-client-")
    test.addCleanup(folder.cleanup)
    made = make(_node["binary"], folder.name)
    test.addCleanup(made.kill)
    made.start()
    return made


def start_server(test, *options):
    """A node of a test's own."""
    return _started(test, lambda binary, folder: Server(binary, folder, *options))


def start_cluster(test, *options):
    """Three nodes of a test's own."""
    return _started(test, lambda binary, folder: Cluster(binary, folder, *options))


def start_dev(test):
    """`annulet dev 3`."""
    return _started(test, Dev)


def connect(server):
    return RiakClient(protocol="pbc", host=server.host, pb_port=server.pb_port, http_port=server.http_port)


class Case(unittest.TestCase):
    """A test with a client."""

    # Whether it starts what it needs, and has nothing to do with the node that all tests share.
    own_nodes = False

    def setUp(self):
        self.server = _node["server"]
        self.client = self.other_client()

    def alone_only(self):
        """Ends a test that holds for a node alone."""
        if _node["nodes"] > 1:
            self.skipTest("the node is not alone")

    def bucket(self, **props):
        """A bucket that no other test uses."""
        bucket = self.client.bucket(f"{self._testMethodName}-{next(_numbers)}")
        if props:
            bucket.set_properties(props)
        return bucket

    def wire(self, server=None):
        """A connection without the client."""
        wire = Wire((server or self.server).pb_port)
        self.addCleanup(wire.socket.close)
        return wire

    def other_client(self):
        client = connect(self.server)
        self.addCleanup(client.close)
        return client

    def store(self, bucket, key, value, **options):
        """A blind write of bytes."""
        return new(bucket, key, value).store(**options)

    def values(self, bucket, key):
        """The values of all siblings, ascending."""
        return sorted(sibling.encoded_data for sibling in bucket.get(key).siblings)

    def assert_refused(self, text, function, *args, **options):
        """The server refuses in these words."""
        with self.assertRaises(RiakError) as raised:
            function(*args, **options)
        self.assertEqual(raised.exception.value, text)


def new(bucket, key, value, content_type="application/octet-stream"):
    return bucket.new(key, encoded_data=value, content_type=content_type)


def unread(bucket, key):
    """An object that is not read before it is used, nor its bucket type's properties asked for."""
    return RiakObject(bucket._client, bucket, key)
