"""
Calls over streams: services from ``.proto`` descriptors, with protoc's messages only.

fields.py     metadata and trailers as one block of bytes status.py     the end of a
call, as trailers and as exceptions messages.py   protobuf messages on a stream, with
back-pressure access.py     the access of a user, as metadata of the calls made for it
dispatch.py   assigns streams to handlers, by method server.py     one call, on the
responding side client.py     one call, on the requesting side held_requests.py limit of
the memory that requests of one agent take

A call is one stream (specification section 10): OPEN names the method and carries the
metadata, DATA carries messages with a four-byte length before each, and the responding
side ends with a header block of trailers that contain the status.
"""
