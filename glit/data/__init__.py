"""Records of samples and datasets, their Arrow schemas and rows, Parquet files, boxes and masks."""
