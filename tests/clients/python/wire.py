"""The protocol without the client's help: frames as bytes, messages of the client's own definitions.

For what the client cannot send or hides: malformed frames, names that are not UTF-8, options it has no argument
for, and answers as they came.
"""

import socket
import struct

from riak.pb import messages, riak_kv_pb2, riak_pb2

HOST = "127.0.0.1"

# Far beyond any answer: it only ends what would hang.
ANSWER_SECONDS = 60

PING, PONG = b"\0\0\0\1\1", (2, b"")
ERROR = messages.MSG_CODE_ERROR_RESP

_CODES = {cls: code for code, cls in messages.MESSAGE_CLASSES.items() if cls is not None}


class ServerError(Exception):
    """An error answer."""


class Wire:
    """One connection."""

    def __init__(self, port, host=HOST):
        self.socket = socket.create_connection((host, port), ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send(self, code, body=b""):
        self.send_bytes(struct.pack("!IB", len(body) + 1, code) + body)

    def send_message(self, message):
        self.send(_CODES[type(message)], message.SerializeToString())

    def receive(self):
        """The next frame as its code and body, or None if the server has closed the connection."""
        header = self._receive_exactly(4)
        if not header:
            return None
        frame = self._receive_exactly(struct.unpack("!I", header)[0])
        return frame[0], frame[1:]

    def _receive_exactly(self, length):
        """So many bytes, or none at all where the stream ends before the first."""
        data = bytearray()
        while len(data) < length:
            try:
                part = self.socket.recv(min(length - len(data), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part and not data:
                return b""
            if not part:
                raise ConnectionError("the stream ends inside a frame")
            data += part
        return bytes(data)

    def receive_message(self):
        """The next answer as a message (None for one that is only its code); an error answer is raised."""
        frame = self.receive()
        if frame is None:
            raise ConnectionError("the connection was closed instead of an answer")
        code, body = frame
        if code == ERROR:
            raise ServerError(error_text(frame))
        cls = messages.MESSAGE_CLASSES.get(code)
        if cls is None:
            return None
        message = cls()
        message.ParseFromString(body)
        return message

    def ask(self, message):
        self.send_message(message)
        return self.receive_message()

    def ping(self):
        self.send_bytes(PING)
        return self.receive() == PONG

    def get(self, bucket, key, **options):
        return self.ask(riak_kv_pb2.RpbGetReq(bucket=bucket, key=key, **options))

    def put(self, bucket, key, value, **options):
        return self.ask(put_request(bucket, key, value, **options))

    def delete(self, bucket, key, **options):
        return self.ask(riak_kv_pb2.RpbDelReq(bucket=bucket, key=key, **options))

    def set_props(self, bucket, **props):
        return self.ask(riak_pb2.RpbSetBucketReq(bucket=bucket, props=riak_pb2.RpbBucketProps(**props)))

    def list_keys(self, bucket):
        """The pieces of a listing; its end is a piece like the others if it holds keys."""
        return self._pieces(riak_kv_pb2.RpbListKeysReq(bucket=bucket), lambda piece: piece.keys)

    def stream_buckets(self):
        return self._pieces(riak_kv_pb2.RpbListBucketsReq(stream=True), lambda piece: piece.buckets)

    def _pieces(self, request, names_of):
        self.send_message(request)
        pieces = []
        while True:
            piece = self.receive_message()
            pieces.append(list(names_of(piece)))
            if piece.done:
                return pieces


def put_request(bucket, key, value, content=None, **options):
    content = riak_kv_pb2.RpbContent(value=value, **(content or {}))
    if key is not None:
        options["key"] = key
    return riak_kv_pb2.RpbPutReq(bucket=bucket, content=content, **options)


def error_text(frame):
    """The text of an error answer, whose code must be Riak's only one."""
    code, body = frame
    assert code == ERROR, f"an error was expected, not message {code}"
    error = riak_pb2.RpbErrorResp()
    error.ParseFromString(body)
    assert error.errcode == 0, f"error code {error.errcode}"
    return error.errmsg.decode("utf-8")
