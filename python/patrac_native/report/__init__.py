"""HTML reports of runs: sections, tables and captions. Public: Report, add_run_sections, write_json."""
