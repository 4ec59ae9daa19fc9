# shellcheck shell=bash
# The services: their units, the order of restarts that refuses no connection, the check that they
# stay up, and the roll-back if they do not.

SYSTEMD=$ROOT/etc/systemd/system

# The unit that fired timers in earlier releases; now the dispatcher does.
SCHEDULER=linedesk-scheduler.service

# A digest of all files that the services use, written after a successful start.
STAMP=$OPT/.running-with

running_with() (
  local paths=() path
  cd "${ROOT:-/}" || return
  for path in etc/linedesk/linedesk.toml etc/linedesk/credentials/ opt/linedesk/bot/ etc/systemd/system/linedesk*; do
    [[ ! -e $path ]] || paths+=("$path")
  done
  {
    basename "$(current_release)"
    find "${paths[@]}" \( -name __pycache__ -o -name .git \) -prune -o -type f \
      ! -path '*/credentials/admin/*' ! -path '*/credentials/operator/*' -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum
)

services() {
  if [[ -n $WORKER ]]; then
    echo linedesk-worker.service
    return
  fi
  # Only if an operator has enabled a worker on the dispatcher's machine.
  [[ $(setting dispatcher_workers) != amqp ]] || ! ask systemctl is-enabled --quiet linedesk-worker.service ||
    echo linedesk-worker.service
  echo linedesk-dispatcher.service
  # After a roll-back: with this setting the dispatcher of an earlier release fires no timers.
  [[ $(setting scheduler) != process || ! -e $OPT/current/share/linedesk/systemd/$SCHEDULER ]] || echo "$SCHEDULER"
  # Last, since it writes documents that the others read: they must support new fields first.
  echo linedesk-frontdesk.service
}

# The units that systemd runs besides the services.
others() {
  [[ -n $WORKER ]] || echo linedesk.target linedesk-frontdesk.socket
}

# setting NAME: its word or whole number in linedesk.toml; empty for the default. Lines below a
# table's head are the bot's own settings.
setting() {
  sed -nE "/^[[:space:]]*\\[/q; s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*[\"']?([a-z0-9]+).*/\1/Ip" \
    "$ROOT/etc/linedesk/linedesk.toml" 2>/dev/null | head -n 1
}

# The longest stop (the drain and closing) plus the longest start.
restart_seconds() {
  local drain
  drain=$(setting drain_seconds)
  printf '%s\n' "${HEALTH_SECONDS:-$((${drain:-20} + 100))}"
}

lay_units() {
  local from=$1/share/linedesk unit
  [[ -d $from ]] || from=$SOURCE/deploy
  if [[ -e $SYSTEMD/linedesk-frontdesk.socket ]] &&
    ! ask cmp "$from/systemd/linedesk-frontdesk.socket" "$SYSTEMD/linedesk-frontdesk.socket"; then
    note "linedesk-frontdesk.socket has changed. To apply it: systemctl stop linedesk-frontdesk.service; systemctl restart linedesk-frontdesk.socket. Connections are refused during the restart"
  fi
  for unit in "$from"/systemd/*.* "$from"/systemd/*.d/*; do
    [[ ! -f $unit ]] || lay "$unit" "$SYSTEMD/${unit#"$from"/systemd/}" 0644 || return
  done
  lay "$from/linedesk" "$ROOT/usr/local/bin/linedesk" 0755
}

lay_certbot_hook() {
  local hooks=$ROOT/etc/letsencrypt/renewal-hooks/deploy
  if [[ -d $hooks && -e $SOURCE/deploy/tls/linedesk-certbot-hook ]]; then
    lay "$SOURCE/deploy/tls/linedesk-certbot-hook" "$hooks/linedesk" 0755
  fi
}

enable_services() {
  local unit
  for unit in $(others) $(services); do
    if ! ask systemctl is-enabled --quiet "$unit"; then
      change "$unit starts with the machine" systemctl enable --quiet "$unit" || return
    fi
  done
}

all_active() {
  local unit
  for unit in $(others) $(services); do
    ask systemctl is-active --quiet "$unit" || return
  done
}

# activate RELEASE: installs units, switches `current` and restarts. Succeeds if all services came
# up and stayed up. Called as a condition, where bash ignores `set -e`, so each step returns its
# failure.
activate() {
  lay_units "$1" && switch_to "$1" || return
  if runs_with_all_this "$1"; then
    same "the services run with all this"
    enable_services
    return
  fi
  # Runs each time, since an earlier run may have ended between the files and this.
  change "systemd reads its units" systemctl daemon-reload && enable_services || return
  if [[ -n $NO_START ]]; then
    note "the services were not started: run this again without --no-start"
    return 0
  fi
  restart_services && stay_up && drop_scheduler "$1" || return
  restart_console
  [[ -n $DRY_RUN ]] || { mark_release "$1" && write_stamp; }
}

# Runs after the new dispatcher has started, so timers keep firing. While both run, each timer still fires once.
drop_scheduler() {
  [[ -e $SYSTEMD/$SCHEDULER && ! -e $1/share/linedesk/systemd/$SCHEDULER ]] || return 0
  change "without $SCHEDULER" systemctl disable --quiet --now "$SCHEDULER" &&
    change "$SYSTEMD/$SCHEDULER removed" rm -f "$SYSTEMD/$SCHEDULER" &&
    change "systemd reads its units" systemctl daemon-reload || return
  [[ $(setting scheduler) != process ]] || note "the dispatcher fires timers: delete SCHEDULER and SCHEDULER_METRICS_PORT from $ROOT/etc/linedesk/linedesk.toml"
}

# With --dry-run planned changes are not on the disk, so they cannot be compared.
runs_with_all_this() {
  [[ -z $DRY_RUN || $CHANGES -eq 0 ]] &&
    [[ -r $STAMP && $(current_release) == "$1" && $(running_with) == "$(<"$STAMP")" ]] &&
    all_active
}

write_stamp() (
  umask 077
  running_with >"$STAMP"
)

# systemctl returns when a service has reported that it is ready, or has failed.
restart_services() {
  local unit
  if [[ -z $WORKER ]] && ! ask systemctl is-active --quiet linedesk-frontdesk.socket; then
    change "linedesk-frontdesk.socket" systemctl start linedesk-frontdesk.socket || return
  fi
  for unit in $(services); do
    # Otherwise a start limit that a crashed release has used up would also refuse this one.
    [[ -n $DRY_RUN ]] || ask systemctl reset-failed "$unit" || true
    change "$unit, restarted" timeout "$(restart_seconds)" systemctl restart "$unit" || return
  done
  [[ -n $WORKER ]] || ask systemctl is-active --quiet linedesk.target ||
    change "linedesk.target" systemctl start linedesk.target
}

# Only if an operator has enabled it. A console that does not start is no reason to switch back.
restart_console() {
  local unit=linedesk-console.service
  ask systemctl is-enabled --quiet "$unit" || return 0
  change "$unit, restarted" systemctl restart "$unit" ||
    note "$unit did not start; no other service needs it. See journalctl -u $unit"
}

# A process that reports ready and then crashes is restarted by systemd with another PID.
stay_up() {
  local before
  [[ -z $DRY_RUN ]] || return 0
  before=$(main_pids)
  sleep "$SETTLE_SECONDS"
  all_active && [[ $(main_pids) == "$before" ]]
}

main_pids() {
  local unit
  for unit in $(services); do
    systemctl show --property=MainPID --value "$unit"
  done
}

# The failure is shown first, since the older release writes to the same journal.
switch_back() {
  local failed=$1 before=$2
  printf '\ninstall: %s DID NOT COME UP\n' "${failed##*/}" >&2
  tell_why
  if [[ -z $before || $before == "$failed" || ! -d $before ]]; then
    fail "$EXIT_FAILED" "there is no other release to switch back to; fix the error above, then run this again"
  fi
  require_schema "$before"
  rm -f "$STAMP"
  unmark_release "$failed"
  if activate "$before"; then
    fail "$EXIT_SWITCHED_BACK" "switched back: ${before##*/} runs again"
  fi
  tell_why
  fail "$EXIT_FAILED" "${before##*/} does not come up either: see journalctl -u 'linedesk-*'"
}

tell_why() {
  local unit
  # The last lines of a process may not be in the journal yet.
  ask journalctl --sync || true
  for unit in $(failed_services); do
    journalctl --unit "$unit" --lines 8 --no-pager >&2 || true
  done
}

# The services that are not running; all services if one crashed and runs again.
failed_services() {
  local unit failed=()
  for unit in $(services); do
    ask systemctl is-active --quiet "$unit" || failed+=("$unit")
  done
  printf '%s\n' "${failed[@]:-$(services)}"
}

roll_back() {
  local current before
  current=$(current_release)
  before=$(release_before)
  [[ -n $before ]] || fail "$EXIT_FAILED" "there is no release before ${current##*/} that came up"
  require_schema "$before"
  [[ -n $DRY_RUN ]] || unmark_release "$current"
  activate "$before" || switch_back "$before" "$current"
}
