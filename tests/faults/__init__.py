"""Faults, injected into real processes: what breaks, and what nobody may notice."""
