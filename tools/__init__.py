"""
Shared parts of benchmarks and tests, and programs for developers of txkas.

    check_wheel.py     builds the wheel, and tests it and the example
    compiled.py        compiles the modules that handle each request
    git_repository.py  real Git repositories with given contents
    git_server.py      smart HTTP for these repositories
    import_contracts.py  a contract for import-linter
    load/              load generators, and crowds of light agents
    ports.py           free ports, which no other test process uses
    prose.py           checks the language of code and documents
    related.py         selects the tests that a change of a file needs
    wheels.py          builds a compiled wheel for each Python, and tests it
"""
