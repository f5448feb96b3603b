"""
Calls over streams: services from ``.proto`` descriptors, without generated stubs.

    fields.py     metadata and trailers as one block of bytes
    status.py     the end of a call, as trailers and as exceptions
    messages.py   protobuf messages on a stream, with back-pressure
    message_buffer.py
                  an incomplete message, in pieces
    access.py     the user for whom kas makes a call, as metadata of the call
    dispatch.py   assignment of streams to the handlers of their methods
    server.py     one call, on the responding side
    client.py     one call, on the requesting side
    held_requests.py
                  limit of the memory that requests of one agent take

A call is one stream (specification section 10): OPEN names the method and carries the
metadata, DATA carries messages, each preceded by its length in four bytes, and the
responding side ends with a header block of trailers that contain the status.
"""
