"""
Messages for operators.

    page_sessions.proto  sessions of the page's users
"""
