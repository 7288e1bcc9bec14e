"""The two wire formats that agent and supervisor share: gRPC messages and the progress page."""
