"""`write_report`: runs as one HTML page, which opens without a network."""
