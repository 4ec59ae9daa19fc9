# shellcheck shell=bash
# MongoDB: its own package, its configuration with authorization and key file, and `linedesk init`.

MONGOD_CONF=$ROOT/etc/mongod.conf
MONGOD_KEY=$ROOT/etc/mongod.key

install_mongodb() {
  if ask command -v mongod; then
    same "mongod"
    return
  fi
  if [[ -n $DRY_RUN ]] || mongodb_is_offered; then
    case $FAMILY in
      debian) install_by_apt mongodb-org ;;
      redhat) change "package mongodb-org" dnf --assumeyes --quiet install mongodb-org ;;
    esac
    return
  fi
  tell_how_to_get_mongodb
  exit "$EXIT_NO_MONGODB"
}

mongodb_is_offered() {
  case $FAMILY in
    debian) ask apt-get --quiet=2 update && apt-cache policy mongodb-org | grep -q 'Candidate: [0-9]' ;;
    redhat) ask dnf --quiet list --available mongodb-org ;;
  esac
}

tell_how_to_get_mongodb() {
  local page="Install MongoDB Community Edition on Debian"
  [[ $FAMILY == debian ]] || page="Install MongoDB Community Edition on Red Hat or CentOS"
  cat >&2 <<END
install: MongoDB is not installed, and no configured repository has its package mongodb-org.
  MongoDB's manual explains under "$page" how to add
  its repository: a key and one file. Add 6.0, with which linedesk is tested, or the oldest newer
  one that is offered for this system. Do not install the package; run this installer again.
  The installer also accepts a mongod that was installed in another way.
END
}

mongod_user() {
  local user
  user=$(systemctl show --property=User --value mongod.service 2>/dev/null || true)
  if [[ -z $user ]]; then
    [[ $FAMILY == debian ]] && user=mongodb || user=mongod
  fi
  printf '%s\n' "$user"
}

# A file that the operator wrote is kept; the installer names the lines that linedesk needs in it.
lay_mongod_conf() {
  lay_keyfile
  if [[ -e $MONGOD_CONF ]] && ! lacks_in_conf >/dev/null; then
    same "$MONGOD_CONF"
  elif [[ ! -e $MONGOD_CONF ]] || conf_is_the_packages; then
    replace_conf
  else
    refuse_foreign_conf
  fi
}

# Prints the missing lines; the status is 0 if any is missing.
lacks_in_conf() {
  local setting missing=1
  for setting in "replSetName: " "authorization: enabled" "keyFile: "; do
    if ! grep -Eq "^[[:space:]]*\"?${setting/: /\"?:[[:space:]]*\"?}" "$MONGOD_CONF"; then
      printf '%s\n' "${setting%: }"
      missing=0
    fi
  done
  return "$missing"
}

conf_is_the_packages() {
  case $FAMILY in
    debian)
      dpkg-query --show --showformat='${Conffiles}\n' 'mongodb-org*' 2>/dev/null |
        grep -q " /etc/mongod.conf $(md5sum <"$MONGOD_CONF" | cut -d' ' -f1)"
      ;;
    redhat) ask rpm --query --file "$MONGOD_CONF" && ! rpm --verify --file "$MONGOD_CONF" | grep -q " $MONGOD_CONF\$" ;;
  esac
}

replace_conf() {
  local ours
  ours=$(mktemp)
  if [[ $FAMILY == debian ]]; then
    sed 's|dbPath: /var/lib/mongo$|dbPath: /var/lib/mongodb|' "$SOURCE/deploy/mongod.conf" >"$ours"
  else
    cat "$SOURCE/deploy/mongod.conf" >"$ours"
  fi
  if [[ -e $MONGOD_CONF ]]; then
    lay "$MONGOD_CONF" "$MONGOD_CONF.before-linedesk" 0644
  fi
  # Stopped before and started after it: a run that is killed in between leaves no mongod running
  # with the old one.
  if ask systemctl is-active --quiet mongod; then
    change "mongod, stopped for its new configuration" systemctl stop mongod
  fi
  lay "$ours" "$MONGOD_CONF" 0644
  rm "$ours"
}

# mongod does not rotate its log by itself.
lay_log_rotation() {
  local rules=$ROOT/etc/logrotate.d
  if [[ -z $DRY_RUN || -e $MONGOD_CONF ]] && ! grep -Eq '^[[:space:]]*logRotate:[[:space:]]*"?reopen' "$MONGOD_CONF"; then
    note "mongod's log grows without limit: add \"logRotate: reopen\" below systemLog in $MONGOD_CONF, restart mongod, and run this again"
    return
  fi
  lay "$SOURCE/deploy/logrotate/mongod" "$rules/linedesk-mongod" 0644
  [[ -n $DRY_RUN ]] || ask command -v logrotate ||
    note "logrotate is not installed, so mongod's log grows without limit: install its package"
}

refuse_foreign_conf() {
  local lacks
  lacks=$(lacks_in_conf || true)
  if [[ $lacks == *replSetName* ]]; then
    fail "$EXIT_NOT_SET" "$MONGOD_CONF is not the package's own file, so it was not changed. It lacks ${lacks//$'\n'/, }: copy these lines from deploy/mongod.conf, restart mongod, and run this again"
  fi
  same "$MONGOD_CONF"
  note "$MONGOD_CONF was edited and was not changed. It lacks ${lacks//$'\n'/, } (see deploy/mongod.conf). Without them every user of this machine can read and change the stored data"
}

lay_keyfile() {
  if [[ -e $MONGOD_KEY ]]; then
    same "$MONGOD_KEY"
    return
  fi
  change "$MONGOD_KEY" make_keyfile
}

# 1,008 characters of base64; mongod takes up to 1,024.
make_keyfile() (
  umask 077
  head -c 756 /dev/urandom | base64 -w 0 >"$MONGOD_KEY.new" &&
    chmod 0400 "$MONGOD_KEY.new" &&
    chown "$(mongod_user)" "$MONGOD_KEY.new" &&
    mv -fT "$MONGOD_KEY.new" "$MONGOD_KEY"
)

start_mongod() {
  if ! ask systemctl is-enabled --quiet mongod; then
    change "mongod starts with the machine" systemctl enable --quiet mongod
  fi
  if ask systemctl is-active --quiet mongod; then
    same "mongod runs"
  else
    change "mongod" systemctl start mongod
  fi
  [[ -n $DRY_RUN ]] || wait_for_mongod
}

# The package's unit is active before mongod listens.
wait_for_mongod() {
  local port tries
  port=$(sed -nE 's/^[[:space:]]*port:[[:space:]]*([0-9]+).*/\1/p' "$MONGOD_CONF" | head -n 1)
  port=${port:-27017}
  for ((tries = 0; tries < 300; tries++)); do
    # shellcheck disable=SC2016 # the inner shell's own argument
    if ask timeout 1 bash -c ': <"/dev/tcp/127.0.0.1/$1"' - "$port"; then
      return
    fi
    ask systemctl is-active --quiet mongod || break
    sleep 0.2
  done
  fail "$EXIT_FAILED" "mongod does not answer at port $port: see journalctl -u mongod and its log"
}

# Creates missing collections and users, and grants the rights that this release needs. Runs each
# time.
prepare_database() {
  local command=("$RELEASE/bin/linedesk" init --config "$ROOT/etc/linedesk/linedesk.toml"
    --users "$ROOT/etc/linedesk/credentials")
  [[ -z $CAPPED_MB ]] || command+=(--capped-mb "$CAPPED_MB")
  if [[ -n $DRY_RUN ]]; then
    printf 'would do   MongoDB, each time\n             %s\n' "$(printf '%q ' "${command[@]}")"
    return
  fi
  # Not by `env NAME=...`: all users of the machine can read its arguments.
  (export MONGODB_URI && "${command[@]}") ||
    fail "$EXIT_FAILED" "linedesk init failed, see above; the services keep running unchanged"
}
