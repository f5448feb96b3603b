"""
People whom an identity provider signs in, with OpenID Connect.

    authenticator.py  which user a token is, and which agents that user may reach
    keys.py           the keys with which the provider signs, read again now and then
"""
