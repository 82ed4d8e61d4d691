"""The data sets that have a name, one file each."""
