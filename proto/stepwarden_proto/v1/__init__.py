"""Generated gRPC code of stepwarden.v1; made by proto/generate.py, never edited."""
