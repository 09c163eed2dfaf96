package statedir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// Dir is the state directory of a mount, held against other daemons.
type Dir struct {
	Path string
	Lock *os.File // whoever has it locked has the directory
}

// Make makes path if need be. The shared directory, which is open as root, must
// not contain it.
func Make(path string, root int) error {
	if err := Outside(path, root); err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w (choose another one with --state)", err)
	}
	return ownState(path)
}

// ownState makes sure that nobody else can enter the state directory, which has
// the key of this node and the socket that obeys whoever can write to it. One
// that was there before must not have been open for others to write: what is in
// it could be theirs.
func ownState(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the state directory: %w (choose another one with --state)", err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("stat the state directory: %w", err)
	}
	switch mode := st.Mode & 0o777; {
	case int(st.Uid) != os.Geteuid():
		return exitcode.With(exitcode.Usage, fmt.Errorf("state directory %s belongs to user %d: it must belong to the user that dmxfs runs as (%d); choose another one with --state", path, st.Uid, os.Geteuid()))
	case mode == 0o700:
		return nil
	case mode&0o022 != 0:
		return exitcode.With(exitcode.Usage, fmt.Errorf("state directory %s can be changed by other users (mode %04o): make sure that all in it is yours, and chmod 700 it, or choose another one with --state", path, st.Mode&0o7777))
	}
	// It is read by others. If it is for this alone, that ends.
	names, err := dir.Readdirnames(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the state directory: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(path, "lock")); len(names) == 0 || err == nil {
		return dir.Chmod(0o700)
	}
	return exitcode.With(exitcode.Usage, fmt.Errorf("state directory %s has other things in it, and can be read by other users (mode %04o): give the mount one of its own with --state", path, st.Mode&0o7777))
}

// Open makes path if need be, as [Make] does, and locks it.
func Open(path string, root int) (*Dir, error) {
	if err := Make(path, root); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the state directory cannot be written: %w (choose another one with --state)", err)
	}
	if err := lockWithin(lock, endingTime); err != nil {
		defer lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, exitcode.With(exitcode.Busy, fmt.Errorf("state directory %s is in use by another dmxfs%s: give each mount its own with --state", path, Owner(lock)))
		}
		return nil, fmt.Errorf("lock the state directory %s: %w (it must be on a local file system)", path, err)
	}
	d := &Dir{path, lock}
	if err := d.Own(); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// Own has the file of the lock say that this process has it.
func (s *Dir) Own() error {
	// In place, over the block that it has from the first start on: the disk may
	// be full.
	if _, err := s.Lock.WriteAt(fmt.Appendf(nil, "%-20d\n", os.Getpid()), 0); err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	return nil
}

// endingTime is for how long a new daemon waits for one before it that has been
// unmounted: umount(8) does not wait for its end.
const endingTime = 3 * time.Second

// lockWithin locks f as soon as nobody else has it locked, or returns EWOULDBLOCK
// when the time is over.
func lockWithin(f *os.File, limit time.Duration) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(limit); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-tick.C:
		case <-over:
			return err
		}
	}
}

// Owner tells the process that has written itself into the file of the lock, for a
// message; empty if none has.
func Owner(lock *os.File) string {
	b := make([]byte, 32)
	n, _ := lock.ReadAt(b, 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return " (process " + pid + ")"
	}
	return ""
}

// Close lets another daemon have the directory.
func (s *Dir) Close() error { return s.Lock.Close() }

// File is the path of what is called name in the directory.
func (s *Dir) File(name string) string { return filepath.Join(s.Path, name) }

// OffMounts checks that the state directory is not reached through the
// mount, nor through another one of dmxfs: neither could be unmounted.
func OffMounts(cfg config.Config) error {
	state, err := existing(cfg.State)
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("state directory: %w", err))
	}
	point, err := existing(cfg.Mountpoint)
	if err != nil { // a dead mount
		point = cfg.Mountpoint
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	m, ok := mountinfo.Holding(all, state)
	if state == point || strings.HasPrefix(state, point+"/") || ok && m.Type == fusefs.MountType {
		return exitcode.With(exitcode.Usage, fmt.Errorf("state directory %s is below a mount of dmxfs: it must be local to this host, choose another one with --state", cfg.State))
	}
	return nil
}

// Outside checks that path, which need not exist, is not below the directory
// that is open as root.
func Outside(path string, root int) error {
	in, err := Inside(path, root)
	switch {
	case err != nil:
		return fmt.Errorf("state directory: %w", err)
	case in:
		return exitcode.With(exitcode.Usage, fmt.Errorf("state directory %s is on the shared directory: it must be local to this host, choose another one with --state", path))
	}
	return nil
}

// Inside reports whether path, which need not exist, is the directory that is
// open as root, or below it.
func Inside(path string, root int) (bool, error) {
	var want, got unix.Stat_t
	if err := unix.Fstat(root, &want); err != nil {
		return false, fmt.Errorf("stat the shared directory: %w", err)
	}
	real, err := existing(path)
	if err != nil {
		return false, err
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		if unix.Stat(dir, &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino {
			return true, nil
		}
		if dir == filepath.Dir(dir) {
			return false, nil
		}
	}
}

// existing is path, or what there is of it, without symbolic links.
func existing(path string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return real, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return "", err
		}
		path = filepath.Dir(path)
	}
}

// Registration lets the other commands find what belongs to a mount point,
// also when no daemon runs. It is kept below [config.StateHome].
type Registration struct {
	Mountpoint string `json:"mountpoint"`
	Source     string `json:"source"`
	State      string `json:"state"`
}

func registrationFile(mountpoint string) string {
	return filepath.Join(config.StateHome(), "mounts", config.MountName(mountpoint)+".json")
}

// Remember writes down where the state of a mount is.
func Remember(r Registration) error {
	file := registrationFile(r.Mountpoint)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, append(b, '\n')) {
		return nil // as mostly, also with a full disk
	}
	tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// Registered finds the state of a mount point.
func Registered(mountpoint string) (Registration, error) {
	b, err := os.ReadFile(registrationFile(mountpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return Registration{}, exitcode.With(exitcode.NoMount, unknownMount(mountpoint))
	}
	var r Registration
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read what is known of %s: %w", mountpoint, err)
	}
	return r, nil
}

// unknownMount is the error of commands on a mount point that nothing was
// remembered of.
func unknownMount(mountpoint string) error {
	all, err := mountinfo.Read()
	if m, ok := mountinfo.At(all, mountpoint); err == nil && ok && m.Type == fusefs.MountType {
		return fmt.Errorf("%s is mounted, but not by this user, or with another HOME or XDG_STATE_HOME: what is known of mounts is below %s", mountpoint, config.StateHome())
	}
	return fmt.Errorf("nothing is known of a dmxfs mount at %s on this host for this user", mountpoint)
}
