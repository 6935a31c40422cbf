# shellcheck shell=bash
# Sourced by what tries Sluice in a bare system. bare_system SUITE PACKAGES TARBALL: fills $root with bullseye or bookworm
# of Debian, or jammy or noble of Ubuntu, and these packages, separated by commas. TARBALL is the system of an earlier
# call; it is made if it does not exist, and may be empty.
bare_system() {
  local archive=http://deb.debian.org/debian components=main options=() script=/usr/share/debootstrap/scripts/$1
  mkdir -p "${root:?}"
  if [[ -e $3 ]]; then
    tar -xf "$3" -C "$root"
    return
  fi
  case $1 in jammy | noble)
    archive=http://archive.ubuntu.com/ubuntu components=main,universe
    # Debian has no keys of Ubuntu, and no script of each suite: all suites of Ubuntu have the same.
    [[ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] || options+=(--no-check-gpg)
    [[ -e $script ]] || script=/usr/share/debootstrap/scripts/gutsy
    ;;
  esac
  [[ -z $2 ]] || options+=(--include="$2")
  debootstrap --variant=minbase --components="$components" "${options[@]}" "$1" "$root" "$archive" "$script" || return
  [[ -z $3 ]] || tar -cf "$3" -C "$root" .
}

# devices: a /dev that has no GPU of this machine.
devices() {
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  cp -a /dev/{null,zero,full,random,urandom,tty} "$root/dev/"
  mkdir "$root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}
