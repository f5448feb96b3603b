"""
kas' own web page: what runs in all clusters, for people with a browser.

    wire/     messages for operators
    server/   sessions of the page's users, sign-in, and the documents

The folder ``browser`` contains the sources of everything that the browser runs.  ``make
page`` builds them into the folder ``static``, whose files are committed, so that users
need no Node.
"""
