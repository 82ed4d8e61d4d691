"""Tables: .csv and .parquet files, DataFrames, what their columns hold; results as printed text and JSON."""
