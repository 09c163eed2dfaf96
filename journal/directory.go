package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A journal's directory holds
//
//	journal.json  whose journal it is, and the version of its form
//	lock          flock(2)ed by who has it open, with its process ID
//	db/           the database
const (
	identityFile = "journal.json"
	lockFile     = "lock"
	dbDir        = "db"

	formatVersion = 1
)

// identity is the content of journal.json.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Mount   string `json:"mount,omitempty"`
}

// directory is a journal's directory that this process has locked.
type directory struct {
	path  string
	lock  *os.File
	alone bool // nobody else has it open
}

// openDirectory locks the directory and checks whose it is. With create set it
// is made if there is none, and nobody else can have it open; without, it can
// be shared with others that read.
func openDirectory(path string, want identity, create bool) (*directory, error) {
	if create {
		// Records tell who does what: they are for the owner's eyes.
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("the journal's directory can't be made: %w", err)
		}
		if err := checkEmptyOrOurs(path); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(filepath.Join(path, identityFile)); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNotExist, path)
	} else if err != nil {
		return nil, err
	}
	d := &directory{path: path}
	if err := d.acquire(!create); err != nil {
		return nil, err
	}
	if err := d.identify(want, create); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// checkEmptyOrOurs keeps a mistyped path from being filled with a database.
func checkEmptyOrOurs(path string) error {
	files, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("the journal's directory can't be read: %w", err)
	}
	for _, f := range files {
		if f.Name() == identityFile {
			return nil
		}
	}
	for _, f := range files {
		// A crash of the first start leaves these two.
		if n := f.Name(); n != lockFile && n != identityFile+".new" {
			return fmt.Errorf("%w: %s is not empty and is no journal (there is %s); choose another directory",
				ErrOther, path, n)
		}
	}
	return nil
}

// acquire locks the directory. A reader locks it alone, too, if it can: it may
// have to put the database in order. It shares the lock then, see share.
func (d *directory) acquire(reader bool) error {
	name := filepath.Join(d.path, lockFile)
	flags := os.O_RDWR | os.O_CREATE
	if reader {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return fmt.Errorf("the journal's directory can't be locked: %w", err)
	}
	d.lock = f
	err = d.flock(unix.LOCK_EX)
	d.alone = err == nil
	if reader && errors.Is(err, ErrInUse) {
		err = d.flock(unix.LOCK_SH)
	}
	if err != nil {
		f.Close()
		return err
	}
	if !reader {
		// For people, and for the error of flock. Who dies leaves a number
		// that nobody reads, as the lock goes with the process. When the disk
		// is full there is none.
		_ = f.Truncate(0)
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return nil
}

// share lets other readers in.
func (d *directory) share() error {
	d.alone = false
	return d.flock(unix.LOCK_SH)
}

// flock locks the directory in a way, or changes to it.
func (d *directory) flock(how int) error {
	for {
		err := unix.Flock(int(d.lock.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			pid, _ := io.ReadAll(io.NewSectionReader(d.lock, 0, 32))
			by := "another process"
			if p := strings.TrimSpace(string(pid)); p != "" {
				by = "process " + p
			}
			return fmt.Errorf("%w: %s has %s open", ErrInUse, by, d.path)
		}
		return fmt.Errorf("lock %s: %w", d.lock.Name(), err)
	}
}

// identify compares the directory's identity with want, or writes it.
func (d *directory) identify(want identity, create bool) error {
	name := filepath.Join(d.path, identityFile)
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) && create {
		return d.write(name, want)
	}
	if err != nil {
		return err
	}
	var have identity
	if err := json.Unmarshal(b, &have); err != nil || have.Format <= 0 {
		return fmt.Errorf("%w: %s can't be understood; %s", ErrDamaged, name, moveAside(d.path))
	}
	if have.Format > formatVersion {
		return fmt.Errorf("%w: %s has version %d, this program knows %d; use a newer dmxfs, or %s",
			ErrNewer, d.path, have.Format, formatVersion, moveAside(d.path))
	}
	differs := func(what, have, want string) error {
		return fmt.Errorf("%w: %s belongs to %s %s, not %s; choose another directory, or %s",
			ErrOther, d.path, what, have, want, moveAside(d.path))
	}
	if want.Cluster != "" && have.Cluster != want.Cluster {
		return differs("cluster", have.Cluster, want.Cluster)
	}
	if want.Mount != "" && have.Mount != want.Mount {
		return differs("the mount", have.Mount, want.Mount)
	}
	return nil
}

// moveAside is what to do with a journal that can't be used and shan't be lost.
func moveAside(dir string) string {
	return fmt.Sprintf("move it aside (mv %s %s.old)", dir, filepath.Clean(dir))
}

// write makes the identity appear whole or not at all.
func (d *directory) write(name string, id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	return syncDir(d.path)
}

func (d *directory) db() string { return filepath.Join(d.path, dbDir) }

// release lets others open the directory.
func (d *directory) release() error { return d.lock.Close() }
