"""
Executes a plan.

    act.py      applies, waits, prunes, and keeps the inventory
    backups.py  states of objects before agentk deleted or adopted them
    refusal.py  reasons of the API server, without Secrets
"""
