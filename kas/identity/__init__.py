"""
The agents that may connect and the users that may reach them: credentials and signed
tokens.

authenticators.py      all authenticators, by the kind of credential failed_checks.py
counts refused credentials by address file_authenticator.py  the authenticator of the
identity file file.py                the content of the identity file, parsed and
written store.py               changes of the identity file, by kasctl jwt.py
signed tokens of the external and the private API
"""
