"""
Credentials of agents and users, the identity file, and signed tokens.

    authenticators.py      all authenticators, by the kind of credential
    failed_checks.py       limits on refused credentials of one address
    file_authenticator.py  the authenticator of the identity file
    environments.py        labels of agents, and selectors over them
    file.py                the content of the file, parsed and written
    sign_ins.py            sign-ins for the audit log
    store.py               changes of the file by kasctl
    jwt.py                 JSON Web Tokens: signatures and their verification
"""
