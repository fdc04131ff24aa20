"""What flows: records of samples and datasets, their Arrow schemas, boxes and masks."""
