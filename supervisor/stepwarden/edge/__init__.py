"""What touches the world: processes, files, sockets. Nothing here decides."""
