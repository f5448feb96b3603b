"""
kas' half, and the only half in Python.

    module.py         the module
    site.py           the resources below ``/ui``
    documents.py      the HTML documents
    headers.py        header fields that protect the page
    assets.py         the built files
    sign_in.py        sign-in and sign-out
    secret.py         the value of a session's cookie, and the keys made from it
    browser.py        the browser of a user, for limits and the audit log
    sessions.py       sessions in the store of all kas
    authenticator.py  the rights of a session
    metrics.py        metrics
    operators.py      sessions for operators
    agents.py         the agents that a user may reach
"""
