"""
From "a stream to agent 7" to the path that it takes.

    router.py   a path to an agent, which there are, and which streams wait for one
    stream.py   the stream: takes a path, waits for one, retries, resumes on the next
"""
