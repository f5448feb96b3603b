"""
From "a stream to agent 7" to the path that it takes.

    path.py     one path: to an agent here, or through the kas that has it
    router.py   which paths there are, and which streams wait for one
    stream.py   the stream: takes a path, waits for one, changes it, resumes on the next
"""
