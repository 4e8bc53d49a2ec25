"""Frames of HTTP/2, as tests send and read them."""

import struct

DATA, HEADERS, PRIORITY, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 2, 4, 6, 7, 8
END_STREAM, END_HEADERS = 0x1, 0x4
NO_ERROR, ENHANCE_YOUR_CALM = 0, 11


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def frames(got):
    """Type, flags and payload of each frame that is whole."""
    while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
        size = int.from_bytes(got[:3], "big")
        yield got[3], got[4], got[9:9 + size]
        got = got[9 + size:]


def goaway(got):
    """The error code of the last GOAWAY; None: there is none."""
    codes = [int.from_bytes(payload[4:8], "big") for kind, _, payload in frames(got) if kind == GOAWAY]
    return codes[-1] if codes else None


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)


def call_head(path, authorization=None):
    """The head of a gRPC call on the first stream, neither compressed nor remembered."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"127.0.0.1"),
              (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    if authorization:
        fields.append((b"authorization", authorization))
    return frame(HEADERS, END_HEADERS, 1, b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields))


def call(path, authorization=None):
    """The same with an empty message."""
    return call_head(path, authorization) + frame(DATA, END_STREAM, 1, bytes(5))
