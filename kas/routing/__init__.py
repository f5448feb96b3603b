"""
Routing of streams to agents.

    router.py   chooses an instance of an agent, and manages streams that wait
    stream.py   the stream: takes a path, waits for one, retries, resumes on the next
"""
