"""The report: one HTML page of finished runs."""
