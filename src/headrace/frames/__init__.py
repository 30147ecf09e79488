"""From the model to DataFrames."""
