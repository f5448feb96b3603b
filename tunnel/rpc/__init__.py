"""
Calls over streams: services from ``.proto`` descriptors, without generated stubs.

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
metadata, DATA carries messages, each preceded by its length in four bytes, and the
responding side ends with a header block of trailers that contain the status.
"""
