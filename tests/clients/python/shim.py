"""Lets the Riak client of 2016 be imported by today's Python. To be imported before `riak`.

The client takes abstract base classes from `collections`, which has lost them, and passes `verbose` to
`namedtuple`, which no longer takes it. By HTTP it leaves the values of siblings as text, where it gives bytes otherwise.
Under TLS it makes its socket by hand.
"""

import collections
import collections.abc
import sys
import warnings

for _name in collections.abc.__all__:
    if not hasattr(collections, _name):
        setattr(collections, _name, getattr(collections.abc, _name))

_namedtuple = collections.namedtuple


def _without_verbose(typename, field_names, *, verbose=False, **options):
    options.setdefault("module", sys._getframe(1).f_globals.get("__name__"))
    return _namedtuple(typename, field_names, **options)


collections.namedtuple = _without_verbose

# It compares numbers with `is` and versions with `distutils`; nobody will mend that any more.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import riak  # noqa: F401
    import riak.pb.messages  # noqa: F401

from riak.codecs.http import HttpCodec  # noqa: E402

_parse_sibling = HttpCodec._parse_sibling


def _parse_sibling_of_bytes(self, sibling, headers, data):
    return _parse_sibling(self, sibling, headers, data.encode() if isinstance(data, str) else data)


HttpCodec._parse_sibling = _parse_sibling_of_bytes

# It makes a socket of TLS by a constructor that is not public any more.
from riak.security import SecurityError  # noqa: E402
from riak.transports.security import configure_ssl_context  # noqa: E402
from riak.transports.tcp.connection import TcpConnection  # noqa: E402


def _ssl_handshake(self):
    try:
        context = configure_ssl_context(self._client._credentials)
        self._socket = context.wrap_socket(self._socket, server_hostname=self._address[0])
    except Exception as error:
        raise SecurityError(error) from error
    return True


TcpConnection._ssl_handshake = _ssl_handshake
