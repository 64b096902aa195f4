"""From a function in JAX to a model in ONNX: tracing, a rule for each primitive, the graph."""
