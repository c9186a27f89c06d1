#!/usr/bin/env bash
# Installs the organisation's A2A server (contract 001): its package, its folder, its configuration and its start.
# May be run again at any time: what is there is brought up to date, and a configuration that exists is never touched.
#
#   PREFIX=/tmp/try deploy/install_a2a_server.sh      installs everything below another root
#
# A0_DIR          Agent-Zero's folder                                     (/a0)
# ORG_DIR         where organisations and a2a_config.json are             ($A0_DIR/usr/organizations)
# PARLEY_SOURCE   what pip installs: a folder, a wheel, or parley-a2a     (the folder this script is in, else parley-a2a)
# PIP             how to call pip                                         (python3 -m pip)
# PIP_ARGS        what pip is told besides                                (--break-system-packages where it knows that)
# AGENT_ZERO_URL  an Agent-Zero that does the work                        (none: the built-in kernel does)
# AUTH            none, or api_key: then a key is made                    (none, as in the contract's file)
# START           systemd, entrypoint, or none                            (systemd where it runs, else entrypoint)
set -euo pipefail

PREFIX="${PREFIX:-}"
A0_DIR="${A0_DIR:-/a0}"
ORG_DIR="${ORG_DIR:-$A0_DIR/usr/organizations}"
PACKAGE_DIR="$A0_DIR/python/a2a_server"
CONFIG="$ORG_DIR/a2a_config.json"
PYTHON="${PYTHON:-python3}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

say() { printf '%s\n' "install_a2a_server: $*"; }

# What is new replaces what is old in one step, and only if it differs.
put() { # file, mode; content on standard input
  local target="$PREFIX$1" fresh
  mkdir -p "$(dirname "$target")"
  fresh="$(mktemp "$target.XXXXXX")"
  cat >"$fresh"
  if [ -f "$target" ] && cmp -s "$fresh" "$target"; then
    rm -f "$fresh"
    say "$target is up to date"
  else
    chmod "$2" "$fresh"
    mv -f "$fresh" "$target"
    say "wrote $target"
  fi
}

install_dependencies() {
  local source="${PARLEY_SOURCE:-}"
  if [ -z "$source" ]; then
    if [ -f "$HERE/../pyproject.toml" ]; then source="$(cd "$HERE/.." && pwd)"; else source="parley-a2a"; fi
  fi
  local pip="${PIP:-$PYTHON -m pip}" more="${PIP_ARGS-}"
  if [ -z "${PIP_ARGS+set}" ] && $pip install --help 2>/dev/null | grep -q -- --break-system-packages; then
    more="--break-system-packages"
  fi
  # shellcheck disable=SC2086 -- both may be several words
  $pip install --quiet $more "$source"
  say "installed $source"
}

# The contract's modules, where Agent-Zero keeps its Python: they name what is installed, and hold no code of their own.
create_package() {
  local installed file
  installed="$("$PYTHON" -c 'import a2a_server; print(list(a2a_server.__path__)[0])')"
  for file in "$installed"/*.py; do
    put "$PACKAGE_DIR/$(basename "$file")" 0644 <"$file"
  done
}

create_config() {
  if [ -e "$PREFIX$CONFIG" ]; then
    say "$PREFIX$CONFIG stays as it is"
    return
  fi
  local connection='"method": "embedded"' roots=$',\n    "roots": ["/tmp"]'
  if [ -n "${AGENT_ZERO_URL:-}" ]; then
    case "$AGENT_ZERO_URL" in
      *[\"\\]* | *[[:space:]]*) say "AGENT_ZERO_URL is not an address"; exit 2 ;;
    esac
    connection="\"method\": \"direct\", \"agent_zero_url\": \"$AGENT_ZERO_URL\"" roots=""
  fi
  local authentication='"scheme": "none", "api_key": null'
  if [ "${AUTH:-none}" = api_key ]; then
    authentication="\"scheme\": \"api_key\", \"api_key\": \"$("$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32))')\""
  elif [ "${AUTH:-none}" = none ]; then
    say "everybody who can reach port 8200 may use this server; AUTH=api_key makes a key"
  else
    say "AUTH is none or api_key"
    exit 2
  fi
  put "$CONFIG" 0600 <<JSON
{
  "a2a_server": {
    "enabled": true,
    "host": "0.0.0.0",
    "port": 8200,
    "authentication": {$authentication},
    "agent_connection": {$connection},
    "task_queue": {"max_concurrent": 1, "max_queued": 10, "task_timeout_seconds": 600},
    "salute_poll_interval_seconds": 2,
    "org_dir": "$ORG_DIR"$roots
  }
}
JSON
}

# Without an active organisation the sample is one; what is there stays.
create_organisation() {
  [ -z "${AGENT_ZERO_URL:-}" ] || return 0
  if [ -e "$PREFIX$ORG_DIR/active.json" ]; then
    say "$PREFIX$ORG_DIR/active.json stays as it is"
    return
  fi
  local sample
  sample="$("$PYTHON" -c 'from parley.definitions.organisations import sample_folder; print(sample_folder())')"
  mkdir -p "$PREFIX$ORG_DIR"
  cp -Rn "$sample/." "$PREFIX$ORG_DIR/"
  say "put the sample organisation into $PREFIX$ORG_DIR"
}

start_kind() {
  if [ -n "${START:-}" ]; then echo "$START"; elif [ -d /run/systemd/system ]; then echo systemd; else echo entrypoint; fi
}

create_start() {
  local python_path
  python_path="$(command -v "$PYTHON")"
  case "$(start_kind)" in
    systemd)
      put /etc/systemd/system/a2a-server.service 0644 <<UNIT
[Unit]
Description=A2A server of the organisation
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=$python_path -m a2a_server.run --config $CONFIG
Restart=on-failure
NoNewPrivileges=true

[Install]
WantedBy=multi-user.target
UNIT
      if [ -z "$PREFIX" ] && command -v systemctl >/dev/null; then
        systemctl daemon-reload
        systemctl enable --now a2a-server.service
      fi
      ;;
    entrypoint)
      put "$A0_DIR/a2a_server_start.sh" 0755 <<START
#!/bin/sh
# Starts the A2A server beside whatever else the container runs, again when it falls:
# call this from the container's entrypoint, with & behind it.
while true; do
  $python_path -m a2a_server.run --config $CONFIG && exit 0
  sleep 5
done
START
      ;;
    none) say "no start entry, as asked" ;;
    *) say "START is systemd, entrypoint or none"; exit 2 ;;
  esac
}

install_dependencies
create_package
create_config
create_organisation
create_start
say "done; see $PREFIX$CONFIG"
