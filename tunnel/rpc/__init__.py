"""
Calls over streams: services from ``.proto`` descriptors, no stubs but protoc's own.

    fields.py     metadata and trailers as one block of bytes
    status.py     how a call ended, as trailers and as exceptions
    messages.py   protobuf messages cut out of a stream, with back-pressure
    message_buffer.py
                  an incomplete message, in pieces
    access.py     the access of a user, as metadata of the calls made for it
    dispatch.py   method name -> the code that answers
    server.py     one call, on the side that answers
    client.py     one call, on the side that asks
    held_requests.py
                  limit of the memory that requests of one agent take

A call is one stream (specification section 10): OPEN names the method and carries the
metadata, DATA carries messages with a four-byte length before each, and the answering
side ends with a header block of trailers that say how it went.
"""
