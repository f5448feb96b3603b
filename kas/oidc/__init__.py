"""
Users whom an identity provider signs in, with OpenID Connect.

    authenticator.py  verifies an ID token; its user, and the user's agents
    verifier.py       signatures and claims of ID tokens and of logout tokens
    browser_sign_in.py  sign-in in a browser, for kas' pages
    code_flow.py      the code flow without I/O, for kas and for kasctl
    sign_in.py        sign-in as configured
    keys.py           the provider's public keys, read periodically
    description.py    the provider's description
    requests.py       requests to the provider
"""
