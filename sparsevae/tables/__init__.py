"""Tables: .csv and .parquet files, DataFrames, and what their columns hold."""
