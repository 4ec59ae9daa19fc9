# shellcheck shell=bash
# Releases: one venv each below /opt/linedesk/releases, named by version and content. A complete
# release never changes. The link /opt/linedesk/current names the one in use.

OPT=$(readlink -m "$ROOT/opt/linedesk")
KEPT_RELEASES=3

# Handlers in worker processes need one more package.
locks() {
  echo run.txt
  [[ -z $WORKER && $(setting dispatcher_workers) != amqp ]] || echo amqp.txt
}

# The version alone does not distinguish two checkouts between releases.
name_release() {
  # shellcheck disable=SC2046 # one word a file
  "$FOUND_PYTHON" - "$SOURCE" "$OPT/bot/requirements.txt" $(locks) <<'PYTHON'
import hashlib, pathlib, sys, tomllib

source, requirements = map(pathlib.Path, sys.argv[1:3])
project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))
packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
files = ("pyproject.toml", "requirements/build.txt", *(f"requirements/{name}" for name in sys.argv[3:]))
files += ("deploy/linedesk", "scripts/inspect.js")
paths = [source / name for name in files]
for folder in (*packages, "deploy/systemd", "docs"):
    paths += sorted(path for path in (source / folder).rglob("*") if "__pycache__" not in path.parts)
digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
for path in paths + [requirements]:
    if path.is_file():
        name = path.relative_to(source) if path.is_relative_to(source) else path.name
        digest.update(f"\n{name} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
print(f"{project['project']['version']}-{digest.hexdigest()[:8]}")
PYTHON
}

find_release() {
  if [[ -n $DRY_RUN ]] && ! find_python; then
    RELEASE=$OPT/releases/VERSION
    return
  fi
  RELEASE=$OPT/releases/$(name_release)
}

build_release() {
  if [[ -e $RELEASE/.whole ]]; then
    same "$RELEASE"
    return
  fi
  change "$RELEASE" make_release ||
    fail "$EXIT_FAILED" "the release could not be built, see above; the services keep running unchanged"
}

# Each step has its own condition: bash ignores `set -e` in a function called before a `||`.
make_release() {
  local pip=("$RELEASE/bin/python" -m pip --quiet --disable-pip-version-check --no-input)
  local from=()
  [[ -z $WHEELS ]] || from=(--no-index --find-links "$WHEELS")
  rm -rf "$RELEASE" &&
    "$FOUND_PYTHON" -m venv "$RELEASE" &&
    install_packages_of_release &&
    install_linedesk &&
    install_for_bot &&
    "$RELEASE/bin/linedesk" --version >/dev/null &&
    copy_companions &&
    touch "$RELEASE/.whole"
}

install_packages_of_release() {
  local file
  for file in $(locks); do
    install_locked "$file" || return
  done
}

# install_locked FILE [OPTION]...: only files whose hashes are in requirements/, and only wheels, since
# a source package runs its own code to build itself.
install_locked() {
  local file=$1
  shift
  "${pip[@]}" install "${from[@]}" --require-hashes --only-binary :all: "$@" \
    --requirement "$SOURCE/requirements/$file"
}

# The build tools are kept apart from the venv's packages and removed: the services never see them.
install_linedesk() {
  local tools=$RELEASE/build
  install_locked build.txt --target "$tools" &&
    PYTHONPATH=$tools "${pip[@]}" install --no-index --no-deps --no-build-isolation "$SOURCE" &&
    rm -rf "$tools"
}

# The bot's author chooses its packages, hashes included. linedesk's own packages keep their
# versions.
install_for_bot() {
  local wanted=$OPT/bot/requirements.txt
  [[ -e $wanted ]] || return 0
  "${pip[@]}" freeze --exclude linedesk >"$RELEASE/constraints.txt" &&
    "${pip[@]}" install "${from[@]}" --constraint "$RELEASE/constraints.txt" --requirement "$wanted"
}

# Files of the release outside the venv: a roll-back installs the units of its own release.
copy_companions() {
  local share=$RELEASE/share/linedesk
  mkdir -p "$share" "$RELEASE/share/doc/linedesk" &&
    cp -R "$SOURCE/deploy/systemd" "$SOURCE/deploy/linedesk" "$SOURCE/scripts/inspect.js" "$share/" &&
    cp -R "$SOURCE/docs/." "$RELEASE/share/doc/linedesk/" &&
    chmod -R u=rwX,go=rX "$share" "$RELEASE/share/doc/linedesk"
}

# The services cannot write to the bot's folder, so its bytecode is made here. A bot that cannot be
# compiled is reported before any restart.
compile_bot() {
  [[ -z $DRY_RUN ]] || return 0
  "$RELEASE/bin/python" -m compileall -q -x '/\.' "$OPT/bot" ||
    fail "$EXIT_FAILED" "the bot in $OPT/bot cannot be compiled, see above; the services keep running unchanged"
}

current_release() {
  readlink -f "$OPT/current" 2>/dev/null || true
}

# Atomic: `current` is never missing.
switch_to() {
  if [[ $(current_release) == "$(readlink -f "$1")" ]]; then
    return
  fi
  change "current -> ${1##*/}" swap_current "$1"
}

swap_current() {
  ln -sfn "releases/${1##*/}" "$OPT/.current.new" && mv -fT "$OPT/.current.new" "$OPT/current"
}

# A release that started successfully is marked with the time, for a roll-back. A release that
# failed, or was rolled back, has no mark.
mark_release() {
  date +%s%N >"$1/.came-up"
}

unmark_release() {
  rm -f "$1/.came-up"
}

# The releases that started successfully, the latest first.
marked_releases() {
  local mark
  for mark in "$OPT"/releases/*/.came-up; do
    [[ ! -e $mark ]] || printf '%s %s\n' "$(<"$mark")" "${mark%/.came-up}"
  done | sort -rn | cut -d' ' -f2-
}

# The latest marked release before the current one; if the current one has no mark, the latest of
# all.
release_before() {
  marked_releases | awk -v current="$(current_release)" '
    { releases[++count] = $0; if ($0 == current) at = count }
    END { if (at < count) print releases[at + 1] }'
}

# The schema number by which a release writes documents (docs/reference/collections.md: changing
# documents). Older releases do not print it: theirs is 1.
schema_of() {
  local told
  told=$("$1/bin/linedesk" --version 2>/dev/null) || true
  if [[ $told =~ schema\ ([0-9]+) ]]; then
    printf '%s\n' "${BASH_REMATCH[1]}"
  else
    printf '1\n'
  fi
}

# The number in MongoDB, as the release in use reads it; fails if MongoDB cannot be reached.
stored_schema() {
  local told
  told=$(LINEDESK_CONFIG=$ROOT/etc/linedesk/linedesk.toml \
    CREDENTIALS_DIRECTORY=$ROOT/etc/linedesk/credentials/operator \
    "$(current_release)/bin/linedesk" schema) && [[ $told =~ ^[0-9]+$ ]] && printf '%s\n' "$told"
}

# Checked before the switch to an older release: it could misread documents of a newer schema.
require_schema() {
  local known stored
  # A worker reads and writes no documents.
  [[ -z $WORKER ]] || return 0
  known=$(schema_of "$1")
  [[ $known -lt $(schema_of "$(current_release)") ]] || return 0
  stored=$(stored_schema) ||
    fail "$EXIT_FAILED" "${1##*/} writes documents by schema $known, and MongoDB cannot be reached to check for documents of a newer schema: nothing was switched"
  [[ $stored -le $known ]] ||
    fail "$EXIT_FAILED" "${1##*/} supports documents up to schema $known, and the database has schema $stored: it would misread them, so nothing was switched. Fix the release in use, or install a later one"
}

drop_old_releases() {
  local release current kept
  current=$(current_release)
  kept=$(marked_releases | head -n "$KEPT_RELEASES")
  for release in "$OPT"/releases/*/; do
    release=${release%/}
    if [[ -d $release && $release != "$current" && $'\n'$kept$'\n' != *$'\n'$release$'\n'* ]]; then
      change "without ${release##*/}" rm -rf "$release"
    fi
  done
}
