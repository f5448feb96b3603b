"""
From "a stream to agent 7" to the path that it takes.

    router.py       which paths there are
    stream.py       the stream itself, whichever path it takes, and the next path
    waiting.py      what it waits for while there is none
    pacing.py       its producer, which goes on with the next path
    resumption.py   how one that survives its path finds the next
"""
