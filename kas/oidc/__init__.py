"""
Users who sign in with an identity provider (OpenID Connect).

authenticator.py  the user of a token, and the agents that the user may reach sign_in.py
sign-in as configured keys.py           the provider's public keys, read again
periodically
"""
