"""
Execution of a plan.

    act.py                 the steps of an execution, in order
    execution.py           the client, settings and clock that the steps share
    ledger.py              the inventory's entries, and the results so far
    applier.py             objects in Git
    server_side_apply.py   the request that applies a manifest
    recreation.py          objects that must be deleted to be changed
    readiness.py           waits until objects are current
    pruner.py              objects that were removed from Git
    recheck.py             prune guards of one object, right before its delete
    ownership_marks.py     annotations of owners and claims
    outcome.py             the result for one object
    settled.py             the state of an object after it was last applied
    backups.py             states of objects before agentk deleted or adopted them
    refusal.py             reasons of the API server, without Secrets
"""
