"""What notebooks show of this package: small tables in HTML, and progress bars."""
