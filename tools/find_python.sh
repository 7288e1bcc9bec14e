#!/usr/bin/env bash
# Print the newest usable Python of at least 3.11; with an argument ("3.11") exactly that one.
# Usable means: it runs (a version manager's shim may not) and can make a virtual environment.
set -euo pipefail

exact=${1:-}
if [ -n "$exact" ]; then
    candidates=("python$exact" python3)
else
    candidates=(python3.13 python3.12 python3.11 python3)
fi

fits='
import sys
wanted = sys.argv[1]
have = sys.version_info[:2]
sys.exit(have != tuple(map(int, wanted.split("."))) if wanted else have < (3, 11))
'
without_venv=
for candidate in "${candidates[@]}"; do
    path=$(command -v "$candidate") || continue
    "$path" -c "$fits" "$exact" >/dev/null 2>&1 || continue
    if "$path" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "$path"
        exit 0
    fi
    without_venv=$candidate
done

if [ -n "$without_venv" ]; then
    echo "find_python: $without_venv cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2
else
    echo "find_python: no Python ${exact:-3.11 or newer} on the PATH" >&2
fi
exit 1
