# shellcheck shell=bash
# Sourced by the other scripts: creates a complete .venv, or reuses it. A stamp of the requirements
# makes every further run start at once. An interrupted run leaves a mark, and the next one starts
# over.

# Container images often set it. Without bytecode each process of a test would compile all of its
# imports again.
unset PYTHONDONTWRITEBYTECODE

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3; do
    if [[ -n $candidate ]] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed (Debian: apt install python3), or name one by PYTHON=..."
}

check_python() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$1 has no venv module with ensurepip (Debian: apt install python3-venv)"
}

wanted_stamp() {
  cat pyproject.toml requirements/*.txt | sha256sum | cut -d' ' -f1
}

# make_venv SHARE: makes it, or adds a share to what is there.
make_venv() {
  local python
  python=$(find_python) || exit 1
  check_python "$python"
  if [[ -e .venv/.unfinished ]]; then
    rm -rf .venv
  fi
  echo "Setting up .venv for $1 (once) ..." >&2
  mkdir -p .venv
  touch .venv/.unfinished
  [[ -x .venv/bin/python ]] || "$python" -m venv .venv || fail "the virtual environment could not be made"
  install_packages "$1" || fail "installing the dependencies failed; see above"
  wanted_stamp >".venv/.$1"
  rm .venv/.unfinished
}

# Only files whose hashes are known, and only wheels: builds here run the code of their build tools.
# linedesk itself needs the build tools alone, so it is installed meanwhile: pip uses one core.
install_packages() {
  local name files=() building
  for name in run demo amqp tests; do
    [[ $1 == demo && $name =~ amqp|tests ]] || files+=(--requirement "requirements/$name.txt")
  done
  {
    install_locked --requirement requirements/build.txt &&
      .venv/bin/python -m pip install "${PIP[@]}" --no-deps --no-build-isolation --editable .
  } &
  building=$!
  install_locked "${files[@]}" && wait "$building"
}

# Python compiles what is imported, when it is: most of it never is.
PIP=(--quiet --disable-pip-version-check --no-compile)

# Together the files have every dependency; one of them alone has not.
install_locked() {
  .venv/bin/python -m pip install "${PIP[@]}" --no-deps --require-hashes --only-binary :all: "$@"
}

# The tests' packages contain those of the demo.
is_current() {
  [[ ! -e .venv/.unfinished && -x .venv/bin/python ]] || return
  [[ "$(cat ".venv/.$1" .venv/.tests 2>/dev/null)" == *"$(wanted_stamp)"* ]]
}

# ensure_venv demo: what `linedesk demo` needs. ensure_venv tests: what tests and checks need as well.
ensure_venv() {
  # Two scripts at once: the second waits until the first has made it. The lock needs no file of its own.
  exec 9<pyproject.toml
  flock 9 2>/dev/null || true
  is_current "$1" || make_venv "$1"
  exec 9<&-
}

check_mongod() {
  .venv/bin/python - <<'PYTHON'
import sys

from linedesk.setup.private_mongod import MongodNotFound, find_mongod

try:
    find_mongod()
except MongodNotFound as error:
    sys.exit(f"no mongod for this system: {error}")
PYTHON
}
