"""Audit logs of API servers, from agentk's file to the files of kas."""
