"""Lays stepwarden down as a service of the host, and tells how what lies there differs.

shipped   the files as they are shipped with the package
ways      what belongs to which way of running the daemon, and where it goes
stamp     the first line of each file, by which an edited one is known
lay       compares, writes and removes
"""
