"""What stands before the tables of docs/configuration.md; words in capitals are limits put in."""

HEAD = """\
# Configuration reference

<!-- Made from the JSON Schema: stepwarden schema --markdown > docs/configuration.md -->

One YAML file. `stepwarden check FILE` names all its problems at once, as
`file:line:column: error: path: message`, and exits with 78 where there is one (0 where there are
only warnings; with `--strict` warnings count too). `stepwarden check --effective FILE` prints what
holds after defaults. `config/stepwarden.yaml` is an annotated file to start from, and
`config/schema.json` lets an editor check while you type. `config/examples/` has whole deployments:
a tensor-parallel engine on bare metal, prefill and decode as a group, a container driven by its
client, a small box with shell wrappers, a sidecar in a pod.

## How values are written

One rule each, the same at every key. A value is judged as it is written; what a YAML reader would
make of it does not matter.

| kind | accepted | refused, among others |
|---|---|---|
| duration | `30s`, `500ms`, `5m`, `1h30m`, `2d`; plain seconds: `30`, `2.5` | `"30"`, `30 s`, \
`5 minutes`, `1:30`, `30min` |
| size | `100MiB`, `1.5GiB`, `1GB` (KiB MiB GiB TiB: powers of 1024; KB MB GB TB: of 1000); \
plain bytes: `1048576` | `"5"`, `100 MiB`, `100M`, `100mb` |
| number | `5`, `2.5` | `+5`, `-5`, `010`, `1_000`, `1,000`, `1e3`, `0x1F`, `.inf`, `"5"` |
| whole number | `64` | as above, and `64.0` |
| yes or no | `true`, `false` | `yes`, `no`, `on`, `off`, `True`, `1` |
| text | `any words`, `"8"` | `8`, `on`, `null`, `2026-01-02` without quotes: quote them |
| key | taken as text, as it is written | a key written twice, lists or mappings as keys |

- Units of a duration go from large to small (`d h m s ms`), each at most once, with nothing between
  number and unit. 0 is refused except where the table below gives it a meaning.
- Nothing after a key (`startup:`), `~` and `null` are refused: leave the key out instead.
- Unknown keys are refused at every level. At the top level only, keys that start with `x-` are
  yours: nothing reads them, and anchors may live there.
- Anchors and aliases work, and `<<` merges mappings (keys written beside it win). Tags, several
  documents in one file, files above MAX_MIB MiB, more than MAX_NODES values with all aliases
  written out, and nesting deeper than MAX_DEPTH are refused.
- UTF-8, with or without a byte order mark, with any line ends.
- In what a worker says, `${NAME}` is replaced by a variable: see below.

## Which value holds

What a worker says goes over `defaults:`, which goes over the shipped defaults below; key by key,
inside sections too. A worker's `step:` goes over its backend's `step:` in the same way; where one
changes from a formula to rows or back, the keys of the other form fall away. `gpu` and `cpu` exist
with the shipped numbers even if the file does not name them.

Every cause has a hard cap: `max(budget + window, min(busy_factor * budget, max))`; a `hard_cap:`
replaces the second part. `stepwarden explain` shows the arithmetic for any batch.

With `engine: vllm`, `agent: required` and a command or shell line the worker's environment gets
`VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS` (largest hard cap of a step plus `stop.grace`, rounded up) and
`VLLM_ENGINE_READY_TIMEOUT_S` (hard cap of the start), unless `env:` or the supervisor's own
environment or an env file sets them. Otherwise the engine's time-outs are left alone: of a unit, or
of what something else starts, set them there.

## Four shapes of a worker

A worker is exactly one of these. A key that means nothing for its shape is refused where the worker
itself writes it; in `defaults` it may stand, for the others.

| key | what it is | does not take |
|---|---|---|
| `command` | a program and its arguments | `restart.expect_external` |
| `shell` | a line for `/bin/sh -c`; with `exec` no shell stands before the server | the same |
| `unit` | a systemd service, started and stopped by systemd on our word | what its own file says: \
`runner`, `user`, `group`, `umask`, `nice`, `limits`, `cwd`, `env`, `env_file`, `output`, \
`stop.signal` |
| `attach` | started by something else, found by its agent | `agent: none`; keys of a process as \
with `unit`; `pre_start`, `release`, `needs`; the delays of `restart` |

A `unit` must have `Restart=no`, for two restarters would fight; `check` asks systemd for that. With
`agent: none` there are no `step`, `heartbeat`, `drain`, `lease_cap`, `learn` and `learn_floor`.
With `restart.on: never` there are no limits and delays, but with `attach`: there it means that
deaths are not counted.

## Variables

`${NAME}` is replaced in `command`, `cwd`, `unit`, values of `env`, paths of `env_file`,
`output.path` and the commands of `pre_start`, `stop`, `ready` and `release`. `$${` stands for a
plain `${`; `$NAME` without braces is left as it is. A variable that is not set is an error that
names it.

- Looked up: `env` over the files of `env_file` over the daemon's own environment. Values of `env`
  see the latter two only, paths of `env_file` the daemon's alone.
- `shell` is left as it is: the shell replaces, in the same environment. A plain `${NAME}` that
  nothing sets is an error there too; write `${NAME:-}` where it may be missing.
- They are replaced anew at each start, and env files are read anew.

## Env files

UTF-8, one `KEY=VALUE` a line. Empty lines and lines that begin with `#` are skipped, and spaces at
both ends of a line or of a value fall away.

- Without quotes the value goes up to the end of the line; ` # this` is part of it.
- In single quotes everything is literal. In double quotes `\\"`, `\\\\`, `\\$` and `` \\` `` stand
  for the second character, and no other backslash may stand there. Nothing follows the last quote.
- No variables are replaced, no line goes on in the next, no key is written twice, no `export`.

A fault is told with file and line, never with the value. A file that every user can read is a
warning: the place for secrets has mode 0640 or 0600.

## Groups and needs

`needs` lists workers that are HEALTHY before this one starts. Members of a group start in the
order in which they are written, and share one restart budget. A worker is in one group at most;
names that are not there, and orders in which something could never start, are errors.
"""
