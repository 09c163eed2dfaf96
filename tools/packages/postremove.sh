#!/bin/sh
# After the files have gone. With purge the state goes, too: journals and keys. What is
# mounted keeps it, and configuration that an admin wrote is the admin's.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
	if ! grep -qs ' fuse\.dmxfs ' /proc/self/mounts; then
		# Not what somebody has mounted below it, which may be a shared directory.
		rm -rf --one-file-system /var/lib/dmxfs || true
	fi
	rmdir /etc/dmxfs 2>/dev/null || true
fi
