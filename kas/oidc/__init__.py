"""
Users whom an identity provider signs in, with OpenID Connect.

    authenticator.py  the user of a token, and the agents that the user may access
    sign_in.py        sign-in as configured
    keys.py           the provider's public keys, read periodically
"""
