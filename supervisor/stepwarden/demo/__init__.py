"""The demonstration: a small inference server that does real work, and its story (`make demo`)."""
