"""
Routing of streams to agents.

    router.py   finds a path to an agent, and manages streams that wait for one
    stream.py   the stream: takes a path, waits for one, retries, resumes on the next
"""
