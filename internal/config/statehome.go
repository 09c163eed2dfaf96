package config

import (
	"os"
	"os/user"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/unit"
)

// StateHome is the folder below which state directories are made when
// --state is not given.
func StateHome() string {
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "dmxfs")
	}
	if h, err := os.UserHomeDir(); err == nil && filepath.IsAbs(h) {
		return filepath.Join(h, ".local", "state", "dmxfs")
	}
	// mount(8) and systemd start programs without HOME: the same place as in
	// the user's shell all the same.
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		return filepath.Join(u.HomeDir, ".local", "state", "dmxfs")
	}
	return "/var/lib/dmxfs"
}

// MountName is the mount point as a file name, as systemd writes it.
func MountName(mountpoint string) string { return unit.UnitNamePathEscape(mountpoint) }

// defaultState is the state directory of a mount point.
func defaultState(mountpoint string) string {
	return filepath.Join(StateHome(), MountName(mountpoint))
}
