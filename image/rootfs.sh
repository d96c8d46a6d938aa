#!/bin/sh
# Makes the root file system of the image in an empty directory: the programs of file systems that the node plugin runs
# (image/programs) with the libraries that they load, from Debian packages of pinned versions (image/packages), and the
# certificates that ECS is verified with. The Dockerfile and `make image` both run it, on Debian 12; it needs no root.
#   image/rootfs.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
target=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Packages are unpacked side by side, with /bin, /sbin and /lib in /usr as on an installed system.
all=$work/all
mkdir -p "$work/packages" "$all/usr/bin" "$all/usr/sbin" "$all/usr/lib" "$all/usr/lib64"
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$all/$dir"; done
if ! (cd "$work/packages" && xargs apt-get download -q <"$here/packages" >"$work/log" 2>&1); then
  cat "$work/log" >&2
  echo "rootfs.sh: a version of image/packages is not to be had; apt-cache policy tells which is, after apt-get update" >&2
  exit 1
fi
for package in "$work"/packages/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$all"
done

# keep copies a file, and what it links to, to the same place of the image.
keep() {
  mkdir -p "$target/$(dirname "$1")"
  cp --no-dereference --preserve=mode "$all/$1" "$target/$1"
  if [ -L "$all/$1" ]; then
    link=$(readlink "$all/$1")
    case $link in
      /*) next=${link#/} ;;
      *) next=$(dirname "$1")/$link ;;
    esac
    case $next in lib/* | lib64/* | bin/* | sbin/*) next=usr/$next ;; esac
    keep "$next"
  fi
}

libraries=$(dirname "$(find "$all/usr/lib" -name libc.so.6)")
loader=$(find "$libraries" -name 'ld-linux*.so.*')
while read -r program; do
  keep "${program#/}"
  "$loader" --library-path "$libraries" --list "$all$program" >"$work/list"
  if grep 'not found' "$work/list" >&2; then
    echo "rootfs.sh: $program loads a library of a package that image/packages does not name" >&2
    exit 1
  fi
  sed -n "s|.* => $all/\(.*\) (0x.*|\1|p" "$work/list" >>"$work/libraries"
done <"$here/programs"
sort -u "$work/libraries" | while read -r library; do keep "$library"; done
interpreter=$(find "$all/usr/lib64" -name 'ld-linux*' | head -n 1)
[ -z "$interpreter" ] || keep "${interpreter#"$all"/}"
for dir in bin sbin lib lib64; do
  [ -d "$target/usr/$dir" ] && ln -sfn "usr/$dir" "$target/$dir"
done
find "$target/usr" -type f -exec chmod u-s,g-s {} +

keep etc/mke2fs.conf
ln -s ../proc/self/mounts "$target/etc/mtab" # resize2fs looks there
mkdir -p "$target/etc/ssl/certs" "$target/var/lib/dpkg/status.d"
find "$all/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs cat >"$target/etc/ssl/certs/ca-certificates.crt"

# Licences, and what the packages say of themselves: scanners read it.
for package in "$work"/packages/*.deb; do
  name=$(dpkg-deb --field "$package" Package)
  dpkg-deb --field "$package" >"$target/var/lib/dpkg/status.d/$name"
  keep "$(cd "$all" && find usr/share/doc/"$name" -name copyright | head -n 1)"
done
