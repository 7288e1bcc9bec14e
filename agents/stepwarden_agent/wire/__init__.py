"""A gRPC client for one stream, on the standard library's sockets.

From the bottom up: `hpack` and `frames` know bytes, `http2` one connection with one stream, `call`
what gRPC means by it; none of them holds a socket or reads a clock. `target` and `dial` reach the
supervisor. Whatever a peer sends, these modules answer with an end of the call, never with an
exception, and keep no more of it than the limits at their tops say.
"""
