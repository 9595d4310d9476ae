"""The verdict on a run: its evidence, what the evidence shows, and advice."""
