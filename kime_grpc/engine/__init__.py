"""The in-process engine: one model on one device, answering many callers through shared batches."""
