#!/bin/sh
# Makes the root file system of the image in an empty directory: the programs of file systems that the node plugin runs
# (image/programs) with the libraries that they load, from Debian packages of pinned versions and hashes (image/packages,
# image/packages.sha256), and the certificates that ECS is verified with. The Dockerfile and `make image` both run it, on
# Debian 12 of whatever architecture; it needs binutils and no root. Packages are kept in the last directory, if it is named.
#   image/rootfs.sh DIRECTORY ARCHITECTURE [PACKAGES]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
architecture=$2
mkdir -p "$1"
target=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "${3:-$work}/$architecture"
kept=$(cd "${3:-$work}/$architecture" && pwd)

# apt has a state of its own here, so that it knows this architecture's packages and the machine's stay as they are.
cat >"$work/apt.conf" <<END
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Sandbox::User "";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Dir::State "$work/apt";
Dir::State::status "/dev/null";
Dir::Cache "$work/apt";
END
export APT_CONFIG="$work/apt.conf"

# listed prints the files of the packages, and fails if one is missing.
listed() {
  while IFS='=' read -r name version; do
    set -- "$kept/${name}_$(echo "$version" | sed 's/:/%3a/g')"_*.deb
    [ -e "$1" ] && echo "$1" || return 1
  done <"$here/packages"
}

# One run at a time downloads, for others would take a package that is not whole.
exec 9<"$kept"
flock 9
if ! listed >"$work/packages"; then
  mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
  if ! (cd "$kept" && apt-get update -q && xargs apt-get download -q <"$here/packages") >"$work/log" 2>&1 || ! listed >"$work/packages"; then
    cat "$work/log" >&2
    echo "rootfs.sh: a version of image/packages is not to be had for $architecture; apt-cache policy tells which is, after apt-get update" >&2
    exit 1
  fi
fi

exec 9<&-

# A package counts only with the bytes that were pinned, whoever served or kept it.
(cd "$kept" && sed 's|.*/||' "$work/packages" | xargs sha256sum) >"$work/sums"
if grep --invert-match --line-regexp --fixed-strings --file="$here/packages.sha256" "$work/sums" >&2; then
  echo "rootfs.sh: image/packages.sha256 has no such lines; add them only if image/packages has just got these versions from Debian" >&2
  exit 1
fi

# Packages are unpacked side by side, with /bin, /sbin and /lib in /usr as on an installed system.
all=$work/all
mkdir -p "$all/usr/bin" "$all/usr/sbin" "$all/usr/lib" "$all/usr/lib64"
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$all/$dir"; done
while read -r package; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$all"
done <"$work/packages"

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

# load keeps the libraries that a file names, and those that they name.
libraries=$(dirname "$(find "$all/usr/lib" -name libc.so.6)")
load() {
  readelf --dynamic --wide "$all/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
  for library in $(cat "$work/needed"); do
    if [ ! -e "$libraries/$library" ]; then
      echo "rootfs.sh: /$1 loads $library, of a package that image/packages does not name" >&2
      exit 1
    fi
    if [ ! -e "$target/${libraries#"$all"/}/$library" ]; then
      keep "${libraries#"$all"/}/$library"
      load "${libraries#"$all"/}/$library"
    fi
  done
}
while read -r program; do
  keep "${program#/}"
  load "${program#/}"
  interpreter=$(readelf --program-headers --wide "$all$program" | sed -n 's/.*program interpreter: \/\(.*\)\]/\1/p')
done <"$here/programs"
keep "usr/$interpreter"
for dir in bin sbin lib lib64; do
  [ -d "$target/usr/$dir" ] && ln -sfn "usr/$dir" "$target/$dir"
done
find "$target/usr" -type f -exec chmod u-s,g-s {} +

keep etc/mke2fs.conf
ln -s ../proc/self/mounts "$target/etc/mtab" # resize2fs looks there
mkdir -p "$target/etc/ssl/certs" "$target/var/lib/dpkg/status.d"
find "$all/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs cat >"$target/etc/ssl/certs/ca-certificates.crt"

# Licences, and what the packages say of themselves: scanners read it.
while read -r package; do
  name=$(dpkg-deb --field "$package" Package)
  dpkg-deb --field "$package" >"$target/var/lib/dpkg/status.d/$name"
  keep "$(cd "$all" && find usr/share/doc/"$name" -name copyright | head -n 1)"
done <"$work/packages"
