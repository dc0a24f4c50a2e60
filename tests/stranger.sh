#!/usr/bin/env bash
# stranger.sh BUILD [FOLDER]: a stranger's first hour. A bare Debian 12 in FOLDER (made by debootstrap if it is not there; without
# FOLDER in one that is removed at the end), the Debian packages of BUILD, docs/tutorial.md from top to bottom, README's
# program, and the packages removed again: nothing is left. Root, debootstrap and a network, else exit code 77.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
folder=${2:-}

leave_out() {
  echo "stranger.sh: $*: left out"
  exit 77
}
fail() {
  echo "stranger.sh: $*" >&2
  exit 1
}
((EUID == 0)) || leave_out "root is needed for a chroot"
command -v debootstrap >/dev/null || leave_out "no debootstrap"

if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  temporary=1
fi
finish() {
  umount -l "$folder/proc" "$folder/sys" 2>/dev/null || true
  if [ -n "${temporary:-}" ]; then rm -rf --one-file-system "$folder"; fi
}
trap finish EXIT
if [ ! -e "$folder/usr" ]; then
  echo "== a bare Debian 12"
  debootstrap --variant=minbase --include=git,ca-certificates bookworm "$folder" >"$folder.log" 2>&1 ||
    { tail -3 "$folder.log"; leave_out "debootstrap failed"; }
  rm "$folder.log"
fi
mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
mountpoint -q "$folder/sys" || mount -t sysfs -o ro sys "$folder/sys"  # without it PoCL ends the process
cp /etc/resolv.conf "$folder/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"

echo "== the packages"
rm -rf "$folder/root/hour" && mkdir "$folder/root/hour"
(cd "$build" && cpack --config CPackConfig.cmake -B "$folder/root/hour") >/dev/null
rm -rf "$folder/root/hour/_CPack_Packages"
there() {
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot "$folder" bash -c "cd /root/hour && $1"
}

"$source/tests/run_page.py" "$source/docs/tutorial.md" --print | there 'bash -s' || fail "the tutorial does not go through"
"$source/tests/run_page.py" "$source/README.md" --only 'Use it' --print |
  there 'mkdir readme && cd readme && bash -s && cmake -B build && cmake --build build && build/readme' || fail "README's program is not right"

echo "== removed again"
there 'apt-get purge -y faltung libfaltung-dev libfaltung0.1' >/dev/null
left=$(there 'find / -xdev -path /root -prune -o -path /proc -prune -o -iname "*faltung*" -print')
[ -z "$left" ] || fail "left behind: $left"
echo "a stranger's hour went through"
