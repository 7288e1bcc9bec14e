"""Write model folders with random weights that vLLM loads offline (`--load-format dummy`).

    python tools/make_models.py DIRECTORY

Only what vLLM reads before it fills the weights itself: a Llama-type configuration and a
tokenizer whose tokens are single bytes, so that a prompt of n letters has n tokens.
Runs in vLLM's environment (needs `tokenizers`, which vLLM brings).
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

CONTEXT = 4096
SPECIAL = ("<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class Shape:
    """How large one model is."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int


SHAPES = {
    "tiny": Shape(layers=2, width=64, inner=128, heads=2, kv_heads=1, vocabulary=1024),
    "mid": Shape(layers=12, width=768, inner=2048, heads=12, kv_heads=4, vocabulary=8192),
    "big": Shape(layers=24, width=1024, inner=2816, heads=16, kv_heads=8, vocabulary=8192),
}


def model_config(shape: Shape) -> dict[str, object]:
    """The content of config.json."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width // shape.heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("</s>"),
    }


def vocabulary(size: int, alphabet: list[str]) -> dict[str, int]:
    """The special tokens, each byte, and names that no text contains up to `size`."""
    names = [*SPECIAL, *sorted(alphabet)]
    names += [f"<unused{index}>" for index in range(len(names), size)]
    return {name: index for index, name in enumerate(names)}


def write_tokenizer(folder: Path, size: int) -> None:
    """Write tokenizer.json and its configuration."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens = vocabulary(size, pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[], unk_token=SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **names}
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, content: dict[str, object]) -> None:
    """One JSON object, readable."""
    path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> int:
    """Write all the models below the directory named on the command line."""
    if len(sys.argv) != 2:
        print("usage: make_models.py DIRECTORY", file=sys.stderr)
        return 2
    for name, shape in SHAPES.items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        config = model_config(shape)
        write_json(folder / "config.json", config)
        ends = {key: config[key] for key in ("bos_token_id", "eos_token_id")}
        write_json(folder / "generation_config.json", ends)
        write_tokenizer(folder, shape.vocabulary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
