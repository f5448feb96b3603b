"""
Neighbours that cannot run here.

    gitlab.py   GitLab, as far as kas asks it
"""
