#!/bin/sh
# Makes a base image from Debian's packages alone, where no image registry can
# be reached: the same suite, and as slim, as the one Docker users know.
#
#   images/base.sh [NAME [SUITE]]      debian:trixie-slim trixie by default
#
# As root; needs debootstrap and Docker. MIRROR names another archive.
set -eu

name=${1:-debian:trixie-slim}
suite=${2:-trixie}
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM

debootstrap --variant=minbase "$suite" "$root" ${MIRROR:+"$MIRROR"}

# No manuals, no translations: neither what is there now nor what comes later.
cat >"$root/etc/dpkg/dpkg.cfg.d/slim" <<'DPKG'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
DPKG
# A package's services are not started by its installation, and no archive and
# no index of packages stays behind.
cat >"$root/usr/sbin/policy-rc.d" <<'RC'
#!/bin/sh
exit 101
RC
chmod 755 "$root/usr/sbin/policy-rc.d"
cat >"$root/etc/apt/apt.conf.d/slim" <<'APT'
Acquire::Languages "none";
APT::Install-Recommends "false";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT

find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root/usr/share/doc" -type l -delete
find "$root/usr/share/doc" -type d -empty -delete
rm -rf "$root/usr/share/info" "$root/usr/share/man" "$root/usr/share/locale" \
	"$root/var/cache/apt"/*.bin "$root/var/cache/apt/archives"/*.deb "$root/var/lib/apt/lists"/* \
	"$root/var/cache/debconf"/*-old "$root/var/log"/*.log "$root/var/log/apt" \
	"$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"

tar -C "$root" --numeric-owner --one-file-system -c . |
	docker import -c 'CMD ["bash"]' - "$name" >/dev/null
docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' "$name"
