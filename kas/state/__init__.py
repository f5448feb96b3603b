"""
The state directory of one kas.

    directory.py       where it is, and how files in it are made
    pki.py             the development certificate authority
    running.py         which kas run here
    process_socket.py  sockets by which kasctl reaches one of them
    control.py         what it may tell kas itself
"""
