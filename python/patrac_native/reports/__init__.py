"""HTML reports of runs: sections, tables and captions."""
