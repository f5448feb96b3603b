"""
Messages of Gitaly, which GitLab keeps repositories with.

    gitaly.proto  what kas asks, with Gitaly's names and numbers
"""
