"""The external API of kas."""
