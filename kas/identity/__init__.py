"""
Which agents may connect and which users may ask: credentials, and signed tokens.

    authenticators.py      all that check credentials, by kind
    failed_checks.py       how many were refused to one address
    file_authenticator.py  the one of the identity file
    file.py                what the file says, parsed and written
    store.py               changes of it, by kasctl
    jwt.py                 signed tokens of the external and the private API
"""
