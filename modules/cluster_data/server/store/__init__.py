"""
The rows of clusters in SQLite.

    row_store.py       the file, its transactions and its threads
    view_rows.py       the rows of one view of one agent
    queries.py         queries of rows and clusters
    terms.py           strings that let queries find rows
    label_selector.py  label selectors as conditions of SQLite
"""
