"""
The state directory of one kas.

    directory.py    where it is, and how files in it are made
    pki.py          the development certificate authority
    running.py      which kas run here
    control.py      the socket by which kasctl asks one of them
"""
