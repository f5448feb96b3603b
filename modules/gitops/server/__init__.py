"""
kas' half of GitOps.

    module.py          sends agentk the files of a source, again when they change
    agent_refs.py      limits the refs of a repository that one agent uses
    config.py          section of kas' configuration file: repositories, and limits
    files.py           the files of a source at a commit
    globs.py           the patterns that select the files of a source
    links.py           symbolic links to files of a source
    step_scheduler.py  runs such searches in steps, between other work of kas
    control_server.py  forwards requests of operators to the leading agentk
    reported.py        receives reports of agentk
    webhooks.py        posts drift to other systems
    alerts.py          the posts as alerts of GitLab
    merge_requests.py  previews merge requests when GitLab announces them
    comments.py        writes comments in GitLab
    comment_text.py    the text of the comment on a merge request
"""
