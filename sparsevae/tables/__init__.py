"""Tables: .csv and .parquet files, DataFrames and their columns; results as printed text and JSON."""
