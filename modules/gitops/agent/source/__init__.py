"""
The files of a commit, and the objects that they describe.

    snapshot.py         the files of one commit: all of them or none
    commits.py          the commits of a project as kas sends them
    pause.py            the pause before agentk repeats a request to kas
    loader.py           the objects of a commit
    rendering.py        runs kustomize and Helm
    helm_versions.py    the API versions that charts see
    decryption.py       decrypts Secrets with SOPS
    folder.py           the folder with the files of these programs
    child_processes.py  runs them as processes, with limits
    launcher.py         sets the limits in the process, and removes its network
    threads.py          threads that parse texts of repositories
"""
