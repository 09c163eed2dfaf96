package mountpoint

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/trouble"
)

// OpenSource opens the shared directory, and says what is wrong with the
// mount point before anything else happens.
func OpenSource(cfg config.Config) (*os.File, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return nil, err
	}
	if IsDead(cfg.Mountpoint) {
		return openDead(all, cfg)
	}
	for _, p := range []string{cfg.Mountpoint, cfg.Source} {
		st, err := os.Stat(p)
		switch {
		case err != nil:
			return nil, trouble.Directory(cfg, p, err)
		case !st.IsDir():
			return nil, exitcode.With(exitcode.Usage, fmt.Errorf("%s is not a directory", p))
		}
	}
	if m, ok := mountinfo.At(all, cfg.Mountpoint); ok && m.Type == Type {
		return nil, exitcode.With(exitcode.Busy, fmt.Errorf("%s is already mounted by dmxfs (its source is %s); unmount it first", cfg.Mountpoint, m.Source))
	}
	root, err := os.Open(cfg.Source)
	if err != nil {
		return nil, fmt.Errorf("open the shared directory: %w", err)
	}
	if cfg.Mountpoint != cfg.Source {
		in, err := statedir.Inside(filepath.Dir(cfg.Mountpoint), int(root.Fd()))
		if err == nil && in {
			err = exitcode.With(exitcode.Usage, fmt.Errorf("the mount point %s is inside the shared directory %s: who walks that would come to the mount itself; choose one outside, or mount over the shared directory itself",
				cfg.Mountpoint, cfg.Source))
		}
		if err != nil {
			root.Close()
			return nil, err
		}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &fs); err == nil && fs.Type == unix.FUSE_SUPER_MAGIC && OnDmxfs(all, cfg.Source) {
		root.Close()
		return nil, exitcode.With(exitcode.Busy, fmt.Errorf("%s is below a dmxfs mount already: its locks are between hosts as they are", cfg.Source))
	}
	if err := notInside(root, cfg.Source); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// OnDmxfs reports whether the mount that path is on is one of ours.
func OnDmxfs(all []mountinfo.Mount, path string) bool {
	m, ok := mountinfo.Holding(all, path)
	return ok && m.Type == Type
}

// openDead opens the shared directory when the mount point still has the mount
// of a daemon that has ended.
func openDead(all []mountinfo.Mount, cfg config.Config) (*os.File, error) {
	m, ok := mountinfo.At(all, cfg.Mountpoint)
	if !ok || m.Type != Type {
		return nil, exitcode.With(exitcode.Busy, fmt.Errorf("%s is the mount of a FUSE daemon that has ended, but not of dmxfs: remove it with umount -l %s", cfg.Mountpoint, cfg.Mountpoint))
	}
	if err := Replaceable(cfg); err != nil {
		return nil, err
	}
	if cfg.Source == cfg.Mountpoint {
		return openUnder(cfg.Mountpoint)
	}
	root, err := os.Open(cfg.Source)
	if err != nil {
		return nil, fmt.Errorf("open the shared directory: %w", err)
	}
	return root, nil
}

// Replaceable tells whether a new mount can take the place of a dead one such
// that the shared directory is never seen without locks. Users who mount by
// fusermount3 must take the dead one away first; with a mount in place that
// uncovers the shared directory.
func Replaceable(cfg config.Config) error {
	if os.Geteuid() == 0 || cfg.Source != cfg.Mountpoint {
		return nil
	}
	return exitcode.With(exitcode.Refused, fmt.Errorf("the daemon of %s has died, and only root can mount in the place of a dead mount without uncovering the directory that it protects: "+
		"end the programs that use it, then dmxfs unmount %s and mount again", cfg.Mountpoint, cfg.Mountpoint))
}
