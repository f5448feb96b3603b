"""
The server half: receives rows, keeps them, and answers queries.

    module.py          the module
    receiver.py        messages of the agents that publish
    row_store.py       the rows in SQLite
    view_rows.py       the rows of one view of one agent
    queries.py         queries of the store
    terms.py           texts by which the store finds rows
    label_selector.py  label selectors as conditions of the store
    rights.py          access reviews of readers, and their remembered results
    reader.py          answers to a reader, only with rows that the reader may see
    fleet.py           queries of operators and of GitLab
    live_queries.py    queries that stay, and the changes of their results
    channels.py        channels of ActionCable with rows
    rest.py            queries of users, with their rights
"""
