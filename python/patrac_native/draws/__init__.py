"""Draws: their files, predictions, summary and verdict. Public: Draws, DrawsMixture, their summaries."""
