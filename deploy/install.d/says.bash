# shellcheck shell=bash
# The installer's messages, and the only functions through which it changes the system.

EXIT_FAILED=1
EXIT_USAGE=2
EXIT_SWITCHED_BACK=3
EXIT_NO_MONGODB=69
EXIT_NOT_ROOT=77
EXIT_NOT_SET=78

CHANGES=0
NOTES=()

fail() {
  printf 'install: %s\n' "$2" >&2
  exit "$1"
}

# Reports that no change is needed.
same() {
  printf 'was there  %s\n' "$*"
}

# Adds a hint for the operator, printed at the end.
note() {
  NOTES+=("$1")
}

# change WORDS COMMAND...: prints WORDS and runs the command; with --dry-run it only prints. Returns
# the command's status.
change() {
  local words=$1
  shift
  CHANGES=$((CHANGES + 1))
  if [[ -n $DRY_RUN ]]; then
    printf 'would do   %s\n' "$words"
    [[ $(type -t "$1") == function ]] || printf '             %s\n' "$(printf '%q ' "$@")"
    return 0
  fi
  printf 'doing      %s\n' "$words"
  "$@"
}

# change_once FILE COMMAND...: like change, if the file does not exist yet.
change_once() {
  local path=$1
  shift
  if [[ -e $path ]]; then
    same "$path"
  else
    change "$path" "$@"
  fi
}

# ask COMMAND...: runs a check without output; a missing command counts as false.
ask() {
  "$@" >/dev/null 2>&1
}

# lay SOURCE TARGET MODE [OWNER]: replaces the file atomically, so no process reads half of it.
lay() {
  local source=$1 target=$2 mode=$3 owner=${4:-root:root}
  if ask cmp -s "$source" "$target" && [[ $(stat -c %a "$target") == "${mode#0}" ]]; then
    same "$target"
    return
  fi
  change "$target" replace_file "$source" "$target" "$mode" "$owner"
}

replace_file() {
  local source=$1 target=$2 mode=$3 owner=$4
  # In the target's folder, since a rename works within one file system only. The name begins with a
  # dot, so daemons ignore it.
  local folder=${target%/*} beside=${target%/*}/.${target##*/}.new
  { [[ -d $folder ]] || mkdir -p "$folder"; } &&
    install -m "$mode" "$source" "$beside" &&
    chown "$owner" "$beside" &&
    mv -fT "$beside" "$target"
}

# lay_folder PATH MODE [OWNER]
lay_folder() {
  local path=$1 mode=$2 owner=${3:-root:root}
  if [[ -d $path && $(stat -c %a "$path") == "${mode#0}" ]]; then
    same "$path"
    return
  fi
  change "$path" make_folder "$path" "$mode" "$owner"
}

make_folder() {
  mkdir -p "$1" && chmod "$2" "$1" && chown "$3" "$1"
}
