#!/usr/bin/env bash
# Takes a bare CentOS Stream 9 or Debian 12 to running services, from the checkout that it lies in;
# upgrades what is there; may be run again at any time, also after it was killed, and changes nothing
# where nothing is to do.
set -Eeuo pipefail

usage() {
  cat <<'END'
deploy/install.sh [options]              install, or upgrade to this checkout
deploy/install.sh --roll-back [options]  go back to the release before

  --worker        only a worker, which runs the bot for a dispatcher elsewhere: no MongoDB, no front
                  desk; its secret is AMQP_URL, from FOLDER/worker of linedesk init --amqp FOLDER
  --dry-run       say each step, touch nothing; needs no root
  --wheels DIR    without network: all packages from DIR, made elsewhere by
                  pip download -d DIR --require-hashes --only-binary :all: \
                    -r requirements/run.txt -r requirements/build.txt
  --secrets DIR   a folder with the files LINE_CHANNEL_SECRET and LINE_CHANNEL_ACCESS_TOKEN; or -,
                  lines NAME=VALUE on standard input. Without it they come from the environment, or
                  are asked for on the terminal, where they are not there yet
  --capped-mb N   the size of the capped collection recvq, where it is not there yet (1024)
  --no-start      do all but start or restart the services

Exit codes: 0 done, or nothing to do; 1 a step failed: the services run on as they were, unless the
last lines say that the very first release did not come up; 2 the command line is wrong, or this
Linux is no Debian and no CentOS; 3 the new release did not come up, and the one before runs again;
69 MongoDB is not to be had; 77 not root; 78 a secret or a setting is missing.
END
}

# For the tests: all paths below LINEDESK_ROOT; the commands are those on PATH.
ROOT=${LINEDESK_ROOT:-}
OS_RELEASE=${LINEDESK_OS_RELEASE:-/etc/os-release}
HEALTH_SECONDS=${LINEDESK_HEALTH_SECONDS:-}
SETTLE_SECONDS=${LINEDESK_SETTLE_SECONDS:-3}
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# shellcheck source=deploy/install.d/says.bash
. "$SOURCE/deploy/install.d/says.bash"
# shellcheck source=deploy/install.d/system.bash
. "$SOURCE/deploy/install.d/system.bash"
# shellcheck source=deploy/install.d/secrets.bash
. "$SOURCE/deploy/install.d/secrets.bash"
# shellcheck source=deploy/install.d/mongodb.bash
. "$SOURCE/deploy/install.d/mongodb.bash"
# shellcheck source=deploy/install.d/release.bash
. "$SOURCE/deploy/install.d/release.bash"
# shellcheck source=deploy/install.d/services.bash
. "$SOURCE/deploy/install.d/services.bash"

read_options() {
  WORKER='' DRY_RUN='' NO_START='' ROLL_BACK='' WHEELS='' SECRETS_FROM='' CAPPED_MB='' FIRST=''
  while [[ $# -gt 0 ]]; do
    case $1 in
      --worker) WORKER=yes ;;
      --dry-run) DRY_RUN=yes ;;
      --no-start) NO_START=yes ;;
      --roll-back) ROLL_BACK=yes ;;
      --wheels | --secrets | --capped-mb)
        read_value "$@"
        shift
        ;;
      -h | --help) usage && exit 0 ;;
      *) fail "$EXIT_USAGE" "$1 is no option; --help shows them" ;;
    esac
    shift
  done
}

read_value() {
  case $1 in
    --wheels) WHEELS=$(existing_folder "$@") || exit ;;
    --secrets)
      if [[ ${2:-} == - ]]; then
        read_secrets
      else
        SECRETS_FROM=$(existing_folder "$@") || exit
      fi
      ;;
    --capped-mb) CAPPED_MB=$(whole_number "$@") || exit ;;
  esac
}

existing_folder() {
  [[ -d ${2:-} ]] || fail "$EXIT_USAGE" "$1 needs a folder that is there, not '${2:-}'"
  (cd "$2" && pwd)
}

whole_number() {
  [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$EXIT_USAGE" "$1 needs a whole number, not '${2:-}'"
  printf '%s\n' "$2"
}

# Two at once would build and switch into each other's hands.
be_the_only_one() {
  [[ -z $DRY_RUN ]] || return 0
  mkdir -p "$OPT"
  exec 9<"$OPT"
  flock --nonblock 9 || fail "$EXIT_FAILED" "another install.sh is at work"
}

install_or_upgrade() {
  install_packages
  install_mongodb
  make_user
  lay_folders
  lay_secrets
  lay_bot_secrets
  lay_amqp_urls
  lay_console_password
  lay_settings
  find_release
  build_release
  compile_bot
  lay_mongod_conf
  lay_log_rotation
  start_mongod
  prepare_database
  label_for_selinux
  lay_certbot_hook
  local before
  before=$(current_release)
  activate "$RELEASE" || switch_back "$RELEASE" "$before"
  drop_old_releases
}

install_or_upgrade_worker() {
  install_packages
  make_user
  lay_folders
  lay_secrets
  lay_bot_secrets
  lay_settings
  find_release
  build_release
  compile_bot
  label_for_selinux
  change_once "$OPT/.worker" touch "$OPT/.worker"
  local before
  before=$(current_release)
  activate "$RELEASE" || switch_back "$RELEASE" "$before"
  drop_old_releases
}

# Such a machine stays one, whatever the command line says; another one does not become one.
find_kind() {
  if [[ -e $OPT/.worker ]]; then
    WORKER=yes
  elif [[ -n $WORKER && -z $FIRST ]]; then
    fail "$EXIT_USAGE" "this machine has all of linedesk; for a worker beside it: systemctl enable --now linedesk-worker"
  fi
}

# The operator's file from the first day on: never overwritten.
lay_settings() {
  local settings=$ROOT/etc/linedesk/linedesk.toml
  if [[ -e $settings ]]; then
    same "$settings"
  else
    lay "$SOURCE/deploy/linedesk.toml" "$settings" 0644
  fi
}

report() {
  local words
  [[ -z $FIRST || -n $WORKER ]] || say_what_is_left_to_do
  printf '\n'
  for words in "${NOTES[@]}"; do
    printf -- '- %s\n' "$words"
  done
  if [[ -n $DRY_RUN ]]; then
    printf 'dry run: nothing was touched\n'
  elif [[ $CHANGES -eq 0 ]]; then
    printf 'nothing changed: %s runs\n' "$(basename "$(current_release)")"
  elif [[ -n $WORKER ]]; then
    printf '%s is in use; linedesk status on the dispatcher'"'"'s machine shows this worker\n' "$(basename "$(current_release)")"
  else
    printf '%s is in use; linedesk doctor says whether all is well\n' "$(basename "$(current_release)")"
  fi
  printf 'changed: %s\n' "$CHANGES"
}

say_what_is_left_to_do() {
  cat <<'END'

In the LINE Developers Console, under Messaging API of your channel:
  Webhook URL                https://YOUR.HOST/callback, then "Verify"
  Use webhook                on
  Webhook redelivery         on: LINE then brings again what nobody answered
  Auto-reply messages        disabled, as well as the greeting message: else both answer
HTTPS is nginx's, Caddy's or the front desk's own work: deploy/nginx, deploy/Caddyfile, or
FRONTDESK_TLS_CERT and FRONTDESK_TLS_KEY in /etc/linedesk/linedesk.toml.

Next, as root:
  linedesk doctor                                 checks everything, LINE's side too
  systemctl status 'linedesk-*'                   how the services are
  journalctl -u 'linedesk-*' -f                   what they say
  systemctl enable --now linedesk-export.timer    a backup each night
Your own bot: its modules into /opt/linedesk/bot (and a requirements.txt, if it needs one), BOT into
/etc/linedesk/linedesk.toml, then deploy/install.sh once more.
END
}

main() {
  read_options "$@"
  find_family
  require_root
  [[ -n $(marked_releases) ]] || FIRST=yes
  find_kind
  keep_secrets_here
  # Root's own umask may hide from the services what they run.
  umask 022
  export LC_ALL=C.UTF-8
  be_the_only_one
  trap 'fail "$EXIT_FAILED" "the step above failed (line $LINENO); the services run on as they were"' ERR
  if [[ -n $ROLL_BACK ]]; then
    roll_back
  elif [[ -n $WORKER ]]; then
    install_or_upgrade_worker
  else
    install_or_upgrade
    hint_at_firewall
  fi
  report
}

main "$@"
