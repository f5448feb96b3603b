"""
Users whom an identity provider signs in, with OpenID Connect.

    authenticator.py  the user of a token, and the agents that the user may reach
    sign_in.py        sign-in as the configuration describes it
    keys.py           the keys with which the provider signs, read again now and then
"""
