# shellcheck shell=bash
# The machine: its Linux family, its packages, Python, and the services' user.

find_family() {
  local ids
  # In a shell of its own: the file sets VERSION, NAME and more.
  # shellcheck disable=SC1090
  ids=$(. "$OS_RELEASE" && printf '%s %s' "${ID:-}" "${ID_LIKE:-}") || fail "$EXIT_USAGE" "$OS_RELEASE cannot be read"
  case " $ids " in
    *" debian "*) FAMILY=debian ;;
    *" rhel "* | *" centos "* | *" fedora "*) FAMILY=redhat ;;
    *) fail "$EXIT_USAGE" "this system is not Debian or of CentOS's family: $OS_RELEASE has $ids" ;;
  esac
}

require_root() {
  [[ -n $DRY_RUN || $(id -u) -eq 0 ]] || fail "$EXIT_NOT_ROOT" "run this as root; --dry-run needs no root and shows the steps"
}

# The system's Python, since the services cannot read home folders.
find_python() {
  local candidate
  for candidate in ${PYTHON:-/usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 /usr/bin/python3}; do
    if ask "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; then
      FOUND_PYTHON=$candidate
      return
    fi
  done
  return 1
}

install_packages() {
  if find_python; then
    same "$FOUND_PYTHON, with venv"
    return
  fi
  case $FAMILY in
    debian) install_by_apt python3 python3-venv ca-certificates ;;
    redhat) change "Python 3.11" dnf --assumeyes --quiet install python3.11 ;;
  esac
  if [[ -z $DRY_RUN ]]; then
    find_python || fail "$EXIT_FAILED" "no Python 3.11 or newer with venv was found; name one by PYTHON=..."
  fi
}

install_by_apt() {
  change "the packages' lists" apt-get --quiet=2 update
  change "packages: $*" env DEBIAN_FRONTEND=noninteractive \
    apt-get --quiet=2 --yes --no-install-recommends install "$@"
}

make_user() {
  if ask getent passwd linedesk; then
    same "user linedesk"
    return
  fi
  change "user linedesk" useradd --system --user-group --home-dir /var/lib/linedesk --no-create-home \
    --shell /usr/sbin/nologin linedesk
}

lay_folders() {
  lay_folder "$ROOT/opt/linedesk" 0755
  lay_folder "$ROOT/opt/linedesk/releases" 0755
  lay_folder "$ROOT/opt/linedesk/bot" 0755
  lay_folder "$ROOT/etc/linedesk" 0755
  lay_folder "$ROOT/etc/linedesk/tls" 0750 root:linedesk
  lay_folder "$ROOT/etc/linedesk/credentials" 0700
  lay_folder "$ROOT/etc/linedesk/credentials/worker" 0700
  [[ -z $WORKER ]] || return 0
  lay_folder "$ROOT/etc/linedesk/credentials/dispatcher" 0700
  lay_folder "$ROOT/etc/linedesk/credentials/operator" 0700
  lay_folder "$ROOT/etc/linedesk/credentials/console" 0700
}

# Files that were made elsewhere and moved keep an SELinux label under which systemd may not start
# them.
label_for_selinux() {
  local paths=("$ROOT/opt/linedesk" "$ROOT/etc/linedesk")
  if ask selinuxenabled; then
    if [[ -n $(restorecon -Rnv "${paths[@]}") ]]; then
      change "SELinux labels" restorecon -R "${paths[@]}"
    fi
    note "SELinux: to let nginx forward requests run: setsebool -P httpd_can_network_connect 1"
  fi
}

# Only a hint: the operator decides which ports are open.
hint_at_firewall() {
  if ask firewall-cmd --state; then
    note "firewalld runs: firewall-cmd --permanent --add-service=https && firewall-cmd --reload"
  elif ask systemctl is-active --quiet ufw; then
    note "ufw runs: ufw allow 443/tcp"
  elif ask systemctl is-active --quiet nftables; then
    note "nftables runs: allow TCP port 443 in your own rules"
  else
    note "no firewall was found here; if there is one in front of this machine, LINE needs TCP port 443"
  fi
}
