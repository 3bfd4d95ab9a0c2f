"""Cases that run side by side in one process and leave rows in results.csv."""
