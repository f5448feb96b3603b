"""
State directory of one kas.

    directory.py       its location, and the creation of its files
    pki.py             the development certificate authority
    development_certificate.py  the development certificate for a running kas
    running_record.py  the record of this process
    running.py         records of the kas that run here
    process_socket.py  sockets for kasctl's requests to one of them
    control.py         kasctl's commands for a running kas
    unrecorded.py      changes by kasctl while no kas runs
"""
