"""
The policy of the cluster's owner: which requests of kas agentk carries out.

    document.py       the policy file: its schema, patterns and time windows
    questions.py      requests as the policy sees them
    engine.py         the rules, compiled, and their decisions
    floor.py          requests that no policy permits
    signature.py      signatures of policy files
    state.py          the state in the cluster: its uid, the highest serial, roles
    policy_secret.py  a Secret that all replicas of agentk write
    guard.py          the policy in effect, in front of every request
    via.py            mark of requests that agentk sends as a user
    admission/        the admission webhook
    cases.py          described requests, for tests of policies
    replay.py         decisions on the requests of an audit log
    rendering.py      objects for the cluster that follow from a policy
    command.py        ``agentk-policy``
"""
