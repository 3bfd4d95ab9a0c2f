"""The experiments of the paper: its tables and figures, and the data sets they need."""
