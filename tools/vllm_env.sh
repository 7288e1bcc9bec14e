#!/usr/bin/env bash
# Makes the real vLLM that `make test-vllm` runs, outside this tree; see vllm_env.py.
# 3.11 first: it is the version that the CPU builds of torch are most often kept for.
set -euo pipefail
tools=$(dirname "$0")
python=$("$tools/find_python.sh" 3.11 2>/dev/null || "$tools/find_python.sh")
exec "$python" "$tools/vllm_env.py" "$@"
