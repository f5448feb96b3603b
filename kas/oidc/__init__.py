"""
Users whom an identity provider signs in, with OpenID Connect.

    authenticator.py  verifies an ID token; its user, and the user's agents
    sign_in.py        sign-in as configured
    keys.py           the provider's public keys, read periodically
"""
