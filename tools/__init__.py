"""
What benchmarks and tests share, and programs for those who work on txkas.

    check_wheel.py     builds the wheel, and tries it and the example in a clean place
    compiled.py        compiles what each request passes, for who wants it
    git_repository.py  real repositories, filled with what a test or bench needs
    git_server.py      smart HTTP before them
    load/              loaders, and crowds of light agents
    ports.py           free ports, which no other process of tests is given
    prose.py           checks the language of code and documents
    related.py         chooses the tests that a change of a file needs
    wheels.py          builds a compiled wheel for each Python, and tries it
"""
