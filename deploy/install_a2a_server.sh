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
# AUTH            api_key, or none: everybody who reaches it may use it   (api_key)
# API_KEY         the key; empty: PARLEY_API_KEY or `parley keys` has it  (a new one is made)
# RUN_AS          the user that the server runs as, made if missing       (a2a)
# START           systemd, entrypoint, or none                            (systemd where it runs, else entrypoint)
set -euo pipefail

PREFIX="${PREFIX:-}"
A0_DIR="${A0_DIR:-/a0}"
ORG_DIR="${ORG_DIR:-$A0_DIR/usr/organizations}"
RUN_AS="${RUN_AS:-a2a}"
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
  local authentication key
  case "${AUTH:-api_key}" in
    api_key)
      key="${API_KEY-$("$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32))')}"
      case "$key" in *[!A-Za-z0-9._~+/=-]*) say "API_KEY may hold letters, digits and ._~+/=- only"; exit 2 ;; esac
      authentication="\"scheme\": \"api_key\", \"api_key\": $([ -n "$key" ] && echo "\"$key\"" || echo null)"
      say "clients need the API key in $PREFIX$CONFIG (X-API-Key, or Authorization: Bearer)"
      ;;
    none)
      authentication='"scheme": "none", "api_key": null'
      say "everybody who can reach port 8200 may use this server; AUTH=api_key makes a key"
      ;;
    *) say "AUTH is api_key or none"; exit 2 ;;
  esac
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
  sample="$("$PYTHON" -c 'from parley.drivers.org.driver import sample_folder; print(sample_folder())')"
  mkdir -p "$PREFIX$ORG_DIR"
  cp -Rn "$sample/." "$PREFIX$ORG_DIR/"
  say "put the sample organisation into $PREFIX$ORG_DIR"
}

# The server may write its data and its reports, and nothing else: not the organisation, whose commands it runs.
create_user() {
  mkdir -p "$PREFIX$ORG_DIR/a2a_data" "$PREFIX$ORG_DIR/reports"
  chmod 0700 "$PREFIX$ORG_DIR/a2a_data"
  if [ -n "$PREFIX" ] || [ "$(id -u)" != 0 ] || [ "$RUN_AS" = root ]; then
    return 0
  fi
  if ! id "$RUN_AS" >/dev/null 2>&1; then
    useradd --system --no-create-home --home-dir "$ORG_DIR" --shell /usr/sbin/nologin "$RUN_AS"
    say "made the user $RUN_AS"
  fi
  chown -R "$RUN_AS" "$ORG_DIR/a2a_data" "$ORG_DIR/reports"
  chown "$RUN_AS" "$CONFIG"
}

start_kind() {
  if [ -n "${START:-}" ]; then echo "$START"; elif [ -d /run/systemd/system ]; then echo systemd; else echo entrypoint; fi
}

create_start() {
  local python_path
  python_path="$(command -v "$PYTHON")"
  case "$python_path" in
    /root/* | /home/*) say "$RUN_AS may not be able to run $python_path; set PYTHON to one outside of /root and /home" ;;
  esac
  case "$(start_kind)" in
    systemd)
      put /etc/systemd/system/a2a-server.service 0644 <<UNIT
[Unit]
Description=A2A server of the organisation
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
User=$RUN_AS
ExecStart=$python_path -m a2a_server.run --config $CONFIG
Restart=on-failure
RestartSec=2
TimeoutStopSec=45
KillMode=mixed
LimitNOFILE=65536
UMask=0077
ReadWritePaths=$ORG_DIR/a2a_data $ORG_DIR/reports

CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
PrivateUsers=true
ProtectClock=true
ProtectControlGroups=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectProc=invisible
ProcSubset=all
RemoveIPC=true
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
LockPersonality=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

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
as_user=""
if [ "\$(id -u)" = 0 ] && [ "$RUN_AS" != root ]; then
  as_user="setpriv --reuid=$RUN_AS --regid=$RUN_AS --init-groups --no-new-privs"
fi
while true; do
  \$as_user $python_path -m a2a_server.run --config $CONFIG && exit 0
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
create_user
create_start
say "done; see $PREFIX$CONFIG"
