"""Secrets beside names that say so are not shown, and nothing else is hidden."""

from __future__ import annotations

import pytest
from stepwarden.redaction import (
    is_secret,
    redacted,
    redacted_argv,
    redacted_environment,
    redacted_line,
)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "API_KEY",
        "api-key",
        "--api-key",
        "apikey",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "PASSWORD",
        "token",
        "--hf-token",
        "client.secret",
        "WANDB_API_KEY_2",
        "x-api-key",
        "VLLM_API_KEY",
        "passphrase",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "--tokenizer",
        "--max-num-batched-tokens",
        "--max-tokens",
        "TOKENIZERS_PARALLELISM",
        "--ssl-keyfile",
        "KEY",
        "--key",
        "HOME",
        "--token-limit",
        "--skip-tokenizer-init",
        "VLLM_CPU_KVCACHE_SPACE",
        "MONKEY",
        "keyboard",
        "--served-model-name",
        "secretary",
    ],
)
def test_names_of_everything_else(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["vllm", "--api-key", "S", "--port", "1"], ["vllm", "--api-key", "***", "--port", "1"]),
        (["vllm", "--api-key=S", "-x"], ["vllm", "--api-key=***", "-x"]),
        (["docker", "run", "-e", "HF_TOKEN=S", "i"], ["docker", "run", "-e", "HF_TOKEN=***", "i"]),
        (["docker", "run", "-e", "HF_TOKEN", "i"], ["docker", "run", "-e", "HF_TOKEN", "i"]),
        (["a", "--api-key", "${KEY}"], ["a", "--api-key", "${KEY}"]),
        (["a", "--api-key=${KEY}"], ["a", "--api-key=${KEY}"]),
        (
            ["curl", "-H", "Authorization: Bearer S", "u"],
            ["curl", "-H", "Authorization: Bearer ***", "u"],
        ),
        (["curl", "-H", "X-Api-Key: S"], ["curl", "-H", "X-Api-Key: ***"]),
        (["a", "redis://me:S@host:1/0"], ["a", "redis://me:***@host:1/0"]),
        (["a", "--token", "--verbose"], ["a", "--token", "--verbose"]),
        (["vllm", "serve", "google/gemma", "--max-num-seqs", "64"], None),
        (["a", "http://127.0.0.1:8000/health", "--tokenizer", "t/t"], None),
    ],
)
def test_commands(argv: list[str], shown: list[str] | None) -> None:
    assert redacted_argv(argv) == (argv if shown is None else shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("HF_TOKEN=S exec vllm --api-key S2", "HF_TOKEN=*** exec vllm --api-key ***"),
        ("exec a --api-key='S 1' --port 1", "exec a --api-key=*** --port 1"),
        ('exec a --api-key "$KEY"', 'exec a --api-key "$KEY"'),
        ("CUDA_VISIBLE_DEVICES=0 exec llama-server | tee -a /x", None),
    ],
)
def test_lines_of_a_shell(line: str, shown: str | None) -> None:
    assert redacted_line(line) == (shown or line)


def test_environments_and_whole_files() -> None:
    env = {"HF_TOKEN": "S", "N": "1", "DB_URL": "pg://u:S@h/d", "A_TOKEN": "${B}", "E_TOKEN": ""}
    shown = {
        "HF_TOKEN": "***",
        "N": "1",
        "DB_URL": "pg://u:***@h/d",
        "A_TOKEN": "${B}",
        "E_TOKEN": "",
    }
    assert redacted_environment(env) == shown
    command = ["a", "--api-key", "S"]
    file = {
        "workers": {"w": {"env": env, "command": command, "stop": {"command": command}, "n": 3}}
    }
    hidden = ["a", "--api-key", "***"]
    assert redacted(file)["workers"]["w"] == {
        "env": shown,
        "command": hidden,
        "stop": {"command": hidden},
        "n": 3,
    }
