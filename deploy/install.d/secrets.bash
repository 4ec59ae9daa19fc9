# shellcheck shell=bash
# The channel secret and the channel access token: their sources and their files. Also the console's
# password, which is generated here, and the file of the bot's own secrets. They are never arguments
# or environment variables of a program, where other users could read them.

SECRETS=(LINE_CHANNEL_SECRET LINE_CHANNEL_ACCESS_TOKEN AMQP_URL)

# Secrets from the environment stay in this shell: building packages runs third-party code.
keep_secrets_here() {
  export -n MONGODB_URI "${SECRETS[@]}"
}

# Lines NAME=VALUE; other names are ignored.
read_secrets() {
  local line name
  while IFS= read -r line; do
    for name in "${SECRETS[@]}"; do
      [[ $line != "$name="* ]] || printf -v "$name" '%s' "${line#*=}"
    done
  done
}

lay_secrets() {
  local name missing=()
  for name in $(secrets_of_kind); do
    lay_secret "$name" || missing+=("$name")
    [[ $name == AMQP_URL ]] || lay_link "$name"
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ -n $NO_START || -n $DRY_RUN ]]; then
    note "missing: ${missing[*]}. Run this again with them: on a terminal it asks for them"
    return 0
  fi
  fail "$EXIT_NOT_SET" "missing: ${missing[*]}. Run this on a terminal, which asks for them; or set them in the environment; or name a folder with a file for each: --secrets DIR"
}

# The required secrets. A dispatcher takes a given AMQP_URL; otherwise it has one from `linedesk
# init --amqp`, or needs none. The URL for `init` itself names no user.
secrets_of_kind() {
  [[ -z $WORKER ]] || { echo AMQP_URL && return; }
  echo LINE_CHANNEL_SECRET LINE_CHANNEL_ACCESS_TOKEN
  [[ $(given_secret AMQP_URL) != *@* ]] || echo AMQP_URL
}

secret_file() {
  local folder=$ROOT/etc/linedesk/credentials
  if [[ $1 == AMQP_URL ]]; then
    [[ -n $WORKER ]] && folder+=/worker || folder+=/dispatcher
  fi
  printf '%s/%s\n' "$folder" "$1"
}

# Succeeds if the secret exists afterwards.
lay_secret() {
  local name=$1 target value
  target=$(secret_file "$name")
  value=$(given_secret "$name") || exit
  if [[ -z $value && ! -s $target && -z $DRY_RUN && -t 0 ]]; then
    value=$(asked_secret "$name") || exit
  fi
  if [[ -z $value ]]; then
    [[ -s $target ]] && same "$target"
    return
  fi
  [[ $value =~ ^[!-~]+$ ]] || fail "$EXIT_NOT_SET" "$name is not a single word of ASCII characters"
  [[ $name != LINE_CHANNEL_SECRET || $value =~ ^[0-9a-fA-F]{32}(,[0-9a-fA-F]{32})*$ ]] ||
    fail "$EXIT_NOT_SET" "$name is not 32 hexadecimal digits: copy it from Basic settings in LINE's console"
  [[ $name != AMQP_URL || $value =~ ^amqps?://[^/]+@ ]] ||
    fail "$EXIT_NOT_SET" "$name is not a URL with a user: copy it from worker/AMQP_URL, which linedesk init --amqp makes"
  if [[ -r $target && $(<"$target") == "$value" ]]; then
    same "$target"
    return
  fi
  CHANGES=$((CHANGES + 1))
  if [[ -n $DRY_RUN ]]; then
    printf 'would do   %s\n' "$target"
    return
  fi
  printf 'doing      %s\n' "$target"
  write_secret "$target" <<<"$value" || fail "$EXIT_FAILED" "$target could not be written"
}

given_secret() {
  local name=$1 file=$SECRETS_FROM/$1
  if [[ -n ${!name:-} ]]; then
    trimmed <<<"${!name}"
  elif [[ -n $SECRETS_FROM && -e $file ]]; then
    [[ -r $file ]] || fail "$EXIT_NOT_SET" "$file cannot be read"
    trimmed <"$file"
  fi
}

asked_secret() {
  local value
  read -rsp "$1 (not shown): " value </dev/tty || true
  echo >/dev/tty
  trimmed <<<"$value"
}

trimmed() {
  sed 's/^[[:space:]]*//; s/[[:space:]]*$//' | sed '/./,$!d'
}

write_secret() (
  umask 077
  cat >"$1.new" && mv -fT "$1.new" "$1"
)

# The operator's commands find all secrets in one folder, like a service in its credentials.
lay_link() {
  local link=$ROOT/etc/linedesk/credentials/operator/$1
  if [[ $(readlink "$link" 2>/dev/null) == "../$1" ]]; then
    return
  fi
  change "$link" ln -sfn "../$1" "$link"
}

# Without a password every user with a login on this machine could act as an operator there.
lay_console_password() {
  local target=$ROOT/etc/linedesk/credentials/console/CONSOLE_PASSWORD
  if [[ -s $target ]]; then
    same "$target"
    return
  fi
  change "$target" make_console_password "$target"
}

# The file is empty until the bot has secrets: the dispatcher's unit does not start without it.
lay_bot_secrets() {
  local target=$ROOT/etc/linedesk/credentials/BOT_SECRETS
  if [[ -e $target ]]; then
    same "$target"
    return
  fi
  change "$target" write_secret "$target" <<'END'
# The bot's own secrets, a line NAME=VALUE each, as Bot(secrets=[...]) names them.
END
}

# Empty unless `linedesk init --amqp` has made them: the units do not start without the files.
lay_amqp_urls() {
  local who folder=$ROOT/etc/linedesk/credentials
  for who in dispatcher worker; do
    change_once "$folder/$who/AMQP_URL" write_secret "$folder/$who/AMQP_URL" </dev/null
  done
}

# 24 characters.
make_console_password() {
  head -c 18 /dev/urandom | base64 | write_secret "$1"
}
