"""
The half of GitOps in kas.

    module.py          answers agentk: sends the files of a source, and again when they
                       change
    config.py          which repositories agents may read, in kas' file, and limits
    refs.py            the commit of a branch, and when that changes
    files.py           the files of a source at a commit
    globs.py           ... by the patterns of the source
    links.py           ... and by symbolic links
    turns.py           turns of such searches, between other work of kas
    control_server.py  passes requests of operators to the agentk that leads
    reported.py        receives reports of agentk
    webhooks.py        passes drift on to other systems
    alerts.py          ... as alerts of GitLab
    merge_requests.py  previews merge requests when GitLab announces them
    comments.py        writes comments at GitLab
    comment_text.py    the text of the comment on a merge request
"""
