"""
Messages of Gitaly, GitLab's server for Git repositories.

    gitaly.proto  the requests of kas, with Gitaly's names and numbers
"""
