#!/bin/sh
# Before the files go for good (deb: "remove"; rpm: 0 are left):
# what systemd has mounted is unmounted. Mounts of fstab are left alone, as those of any
# file system: they are served until they are unmounted.
set -e
case ${1:-} in
upgrade | deconfigure | failed-upgrade | [1-9]) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	do=systemctl
	if command -v deb-systemd-invoke >/dev/null; then
		do=deb-systemd-invoke # which asks the policy of the host
	fi
	$do stop dmxfs.target 'dmxfs@*.service' || true
fi
if grep -qs ' fuse\.dmxfs ' /proc/self/mounts; then
	echo "dmxfs: these mounts are served until they are unmounted:"
	sed -n 's/^[^ ]* \([^ ]*\) fuse\.dmxfs .*/  \1/p' /proc/self/mounts
fi
