"""Files and lines: archives with a checked hash, files that are replaced whole or not at all, text for terminals."""
