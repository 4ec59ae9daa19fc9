# shellcheck shell=bash
# The services: their units, in which order they are restarted so that no connection is refused,
# whether they stay up, and the way back where they do not.

SYSTEMD=$ROOT/etc/systemd/system

# A digest of all that the services run with, written when they came up with it.
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
  # Where an operator has enabled one beside the dispatcher.
  [[ $(setting dispatcher_workers) != amqp ]] || ! ask systemctl is-enabled --quiet linedesk-worker.service ||
    echo linedesk-worker.service
  echo linedesk-dispatcher.service
  [[ $(setting scheduler) != process ]] || echo linedesk-scheduler.service
  # Last, since it writes what the others read: what is new in a document meets nobody who does
  # not know it.
  echo linedesk-frontdesk.service
}

# What systemd runs beside the services.
others() {
  [[ -n $WORKER ]] || echo linedesk.target linedesk-frontdesk.socket
}

# setting NAME: its word or whole number in linedesk.toml; nothing where it has its default. What
# follows in a table is the bot's own.
setting() {
  sed -nE "/^[[:space:]]*\\[/q; s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*[\"']?([a-z0-9]+).*/\1/Ip" \
    "$ROOT/etc/linedesk/linedesk.toml" 2>/dev/null | head -n 1
}

# The longest stop, which is the drain and what follows it, and the longest start together.
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
    note "linedesk-frontdesk.socket is another now. It is taken up by: systemctl stop linedesk-frontdesk.service; systemctl restart linedesk-frontdesk.socket; for that moment it refuses connections"
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
  if [[ $(setting scheduler) != process ]] && [[ $(systemctl is-enabled linedesk-scheduler.service 2>/dev/null) == enabled ]]; then
    change "without linedesk-scheduler.service" systemctl disable --quiet --now linedesk-scheduler.service
  fi
}

all_active() {
  local unit
  for unit in $(others) $(services); do
    ask systemctl is-active --quiet "$unit" || return
  done
}

# activate RELEASE: units, `current`, restart; the status says whether all came up and stayed so.
# Called as a condition, where bash heeds no `set -e`: so each step hands on its failure.
activate() {
  lay_units "$1" && switch_to "$1" || return
  if runs_with_all_this "$1"; then
    same "the services run with all this"
    enable_services
    return
  fi
  # Each time, since an earlier run may have ended between the files and this.
  change "systemd reads its units" systemctl daemon-reload && enable_services || return
  if [[ -n $NO_START ]]; then
    note "not started: this once more, without --no-start, does it"
    return 0
  fi
  restart_services && stay_up || return
  restart_console
  [[ -n $DRY_RUN ]] || { mark_release "$1" && write_stamp; }
}

# With --dry-run what would be changed is not there yet, so it cannot be compared.
runs_with_all_this() {
  [[ -z $DRY_RUN || $CHANGES -eq 0 ]] &&
    [[ -r $STAMP && $(current_release) == "$1" && $(running_with) == "$(<"$STAMP")" ]] &&
    all_active
}

write_stamp() (
  umask 077
  running_with >"$STAMP"
)

# systemctl comes back when a service has said that it is ready, or has failed.
restart_services() {
  local unit
  if [[ -z $WORKER ]] && ! ask systemctl is-active --quiet linedesk-frontdesk.socket; then
    change "linedesk-frontdesk.socket" systemctl start linedesk-frontdesk.socket || return
  fi
  for unit in $(services); do
    # Else the limit of starts, used up by a release that crashed, refuses this one as well.
    [[ -n $DRY_RUN ]] || ask systemctl reset-failed "$unit" || true
    change "$unit, restarted" timeout "$(restart_seconds)" systemctl restart "$unit" || return
  done
  [[ -n $WORKER ]] || ask systemctl is-active --quiet linedesk.target ||
    change "linedesk.target" systemctl start linedesk.target
}

# Only where somebody has enabled it; a page that does not come up is no reason to switch back.
restart_console() {
  local unit=linedesk-console.service
  ask systemctl is-enabled --quiet "$unit" || return 0
  change "$unit, restarted" systemctl restart "$unit" ||
    note "$unit did not come up, which nothing else needs: journalctl -u $unit"
}

# A process that says ready and dies a moment later is restarted by systemd, under another number.
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

# What failed is told first, for the journal of the release before will hide it.
switch_back() {
  local failed=$1 before=$2
  printf '\ninstall: %s DID NOT COME UP\n' "${failed##*/}" >&2
  tell_why
  if [[ -z $before || $before == "$failed" || ! -d $before ]]; then
    fail "$EXIT_FAILED" "there is no other release to go back to; mend what is said above, then run this again"
  fi
  require_schema "$before"
  rm -f "$STAMP"
  unmark_release "$failed"
  if activate "$before"; then
    fail "$EXIT_SWITCHED_BACK" "switched back: ${before##*/} runs again"
  fi
  tell_why
  fail "$EXIT_FAILED" "${before##*/} does not come up either: journalctl -u 'linedesk-*'"
}

tell_why() {
  local unit
  # What a process said last may not be in the journal yet.
  ask journalctl --sync || true
  for unit in $(failed_services); do
    journalctl --unit "$unit" --lines 8 --no-pager >&2 || true
  done
}

# Those that are not up; all, where one died and came up again.
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
