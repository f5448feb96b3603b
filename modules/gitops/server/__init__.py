"""
The half of GitOps in kas.

module.py          sends the files of a source to agentk, and again when they change
config.py          the repositories that agents may read, and limits, in kas'
configuration refs.py the commit of a branch, and its changes files.py the files of a
source at a commit globs.py           ... selected by the patterns of the source
links.py ... and reached through symbolic links turns.py           turns of such
searches, between other work of kas control_server.py  passes requests of operators to
the agentk that leads reported.py receives reports of agentk webhooks.py        posts
drift to other systems alerts.py ... as GitLab alerts merge_requests.py  previews merge
requests when GitLab announces them comments.py        writes comments at GitLab
comment_text.py the text of the comment on a merge request
"""
