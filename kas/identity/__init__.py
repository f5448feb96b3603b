"""
Who may connect and ask: the identity file, and signed tokens.

    file.py           what it says, parsed and written
    store.py          changes of it, by kasctl
    authenticator.py  who a token belongs to, while kas runs
    jwt.py            signed tokens of the external and the private API
"""
