"""What a peer may put into a text to harm who reads it."""

__all__ = ["HOSTILE"]

#: Each begins a line, moves the cursor, hides, or turns the order of what follows.
HOSTILE = (
    "pod\r\n2026-01-01 [kas] the credential was accepted",
    "pod\nkas_up 1",
    "pod\x1b[2J\x1b]0;title\x07",
    "pod\x9b31m",
    "pod\u202egnp.exe",
    "pod\u2066hidden\u2069",
    "pod\u200b\ufeff",
    "pod\u2028line\u2029",
    "pod\x00\x08\x7f",
    "pod\ue000\U000e0041",
)
