"""The checklist of `stepwarden doctor`: facts are gathered, then judged; nothing is changed.

finding     what a check says
subject     what is looked at: a configuration, its workers, the daemon that runs
registry    every check, by theme; one module per theme
running     all checks side by side, each within a limit
engine_dead the way from an EngineDeadError to what has to be changed
"""
