#!/usr/bin/env bash
# Installs this checkout on a bare CentOS Stream 9 or Debian 12, or upgrades an installation, and
# starts the services. It is idempotent: run it again at any time, also after it was killed.
set -Eeuo pipefail

usage() {
  cat <<'END'
deploy/install.sh [options]              install, or upgrade to this checkout
deploy/install.sh --roll-back [options]  go back to the release before

  --worker        install only a worker, which runs the bot for a dispatcher on another machine: no
                  MongoDB, no front desk. Its secret is AMQP_URL, which linedesk init --amqp FOLDER
                  writes to FOLDER/worker
  --dry-run       print each step and change nothing; needs no root
  --wheels DIR    without network: take all packages from DIR, made elsewhere by
                  pip download -d DIR --require-hashes --only-binary :all: \
                    -r requirements/run.txt -r requirements/build.txt
                  for workers also: -r requirements/amqp.txt
  --secrets DIR   a folder with the files LINE_CHANNEL_SECRET and LINE_CHANNEL_ACCESS_TOKEN; or -:
                  lines NAME=VALUE on standard input. Without this option they come from the
                  environment; on a terminal the installer asks for missing ones
  --capped-mb N   the size of the capped collection recvq if it does not exist yet (1024)
  --no-start      do not start or restart the services

Exit codes:
  0   done, or nothing to do
  1   a step failed; the services keep running unchanged, unless the last lines report that the
      first release did not come up
  2   the command line is wrong, or this Linux is not Debian or CentOS
  3   the new release did not come up; the release before it runs again
  69  MongoDB is not available
  77  not root
  78  a secret or a setting is missing
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
      *) fail "$EXIT_USAGE" "unknown option $1; --help lists the options" ;;
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
  [[ -d ${2:-} ]] || fail "$EXIT_USAGE" "$1 needs an existing folder, not '${2:-}'"
  (cd "$2" && pwd)
}

whole_number() {
  [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$EXIT_USAGE" "$1 needs a whole number, not '${2:-}'"
  printf '%s\n' "$2"
}

# Two runs at once would overwrite each other's releases.
be_the_only_one() {
  [[ -z $DRY_RUN ]] || return 0
  mkdir -p "$OPT"
  exec 9<"$OPT"
  flock --nonblock 9 || fail "$EXIT_FAILED" "another install.sh is running"
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

# A worker's machine stays one, regardless of the options; other machines never become one.
find_kind() {
  if [[ -e $OPT/.worker ]]; then
    WORKER=yes
  elif [[ -n $WORKER && -z $FIRST ]]; then
    fail "$EXIT_USAGE" "this machine has a full linedesk; to run a worker here as well: systemctl enable --now linedesk-worker"
  fi
}

# The operator's file: never overwritten.
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
    printf 'dry run: nothing was changed\n'
  elif [[ $CHANGES -eq 0 ]]; then
    printf 'nothing changed: %s runs\n' "$(basename "$(current_release)")"
  elif [[ -n $WORKER ]]; then
    printf '%s is in use; linedesk status on the dispatcher'"'"'s machine shows this worker, and what to run if its bot is new\n' "$(basename "$(current_release)")"
  else
    printf '%s is in use; linedesk doctor and linedesk status check it\n' "$(basename "$(current_release)")"
  fi
  printf 'changed: %s\n' "$CHANGES"
}

say_what_is_left_to_do() {
  cat <<'END'

In the LINE Developers Console, under Messaging API of your channel:
  Webhook URL                https://YOUR.HOST/callback, then "Verify"
  Use webhook                on
  Webhook redelivery         on: LINE then sends unanswered webhooks again
  Auto-reply messages        disabled, like the greeting message: otherwise LINE answers as well
nginx, Caddy or the front desk itself serves HTTPS: see deploy/nginx, deploy/Caddyfile, or
FRONTDESK_TLS_CERT and FRONTDESK_TLS_KEY in /etc/linedesk/linedesk.toml.

Next, as root:
  linedesk doctor                                 checks everything, LINE's side too
  systemctl status 'linedesk-*'                   the state of the services
  journalctl -u 'linedesk-*' -f                   their log
  systemctl enable --now linedesk-export.timer    a backup each night
To run your own bot, copy its modules (and a requirements.txt, if it needs one) to
/opt/linedesk/bot, set BOT in /etc/linedesk/linedesk.toml, and run deploy/install.sh again.
END
}

main() {
  read_options "$@"
  find_family
  require_root
  [[ -n $(marked_releases) ]] || FIRST=yes
  find_kind
  keep_secrets_here
  # With root's own umask the services might not be able to read their files.
  umask 022
  export LC_ALL=C.UTF-8
  be_the_only_one
  trap 'fail "$EXIT_FAILED" "the step above failed (line $LINENO); the services keep running unchanged"' ERR
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
