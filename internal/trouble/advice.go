package trouble

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
)

// Listening says what to do when an address cannot be had.
func Listening(err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		hint = "; another program, or another mount, has it (ss -ltnp shows who): end that, or --listen at another port (0 for a free one)"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		hint = "; this host does not have that address (ip addr shows those that it has): --listen at one of them, or at /ip4/0.0.0.0/tcp/PORT"
	case errors.Is(err, unix.EACCES):
		hint = "; ports below 1024 are for root: --listen at another one"
	}
	return fmt.Errorf("listen for other daemons: %w%s", err, hint)
}

// Directory says what to do when one of the two directories cannot be used.
func Directory(cfg config.Config, path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) && path == cfg.Source:
		return fmt.Errorf("cannot use the shared directory: %w: is its storage mounted on this host?", err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("cannot use the mount point: %w: make it first (mkdir %s)", err, path)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("cannot use the directory: %w: the user that mounts must be able to go there", err)
	}
	return fmt.Errorf("cannot use the directory: %w", err)
}
