package doctor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountinfo"
)

// The doctor examines storage from two sides, each a process of its own: hands
// do what they are told in the doctor's directory, and say what came of it. So
// storage that hangs holds up a process that nobody has to wait for. What they
// can be told is harmless wherever it comes from: see workDir.

// HandsCommand is the hidden command of such a process: its argument is the
// storage's directory, and --private says whether it has a mount namespace of
// its own.
const HandsCommand = "doctor-hands"

// order is something to do.
type order struct {
	Op    string `json:"op"`
	Name  string `json:"name,omitempty"`
	To    string `json:"to,omitempty"`
	Data  string `json:"data,omitempty"`
	Count int    `json:"count,omitempty"`
}

// report is what came of it.
type report struct {
	Errno   int             `json:"errno,omitempty"`
	Error   string          `json:"error,omitempty"`
	Code    int             `json:"code,omitempty"` // the exit number, if the error ends all
	Missing bool            `json:"missing,omitempty"`
	Data    string          `json:"data,omitempty"`
	Names   []string        `json:"names,omitempty"`
	Size    int64           `json:"size,omitempty"`
	Ino     uint64          `json:"ino,omitempty"`
	Dev     uint64          `json:"dev,omitempty"`
	Count   int             `json:"count,omitempty"`
	Time    int64           `json:"time,omitempty"` // ns: since 1970, of this side's clock; or how long it took
	Host    string          `json:"host,omitempty"`
	Real    []byte          `json:"real,omitempty"` // path of the directory, see RealPath; not always UTF-8
	Storage *fusefs.Storage `json:"storage,omitempty"`
}

func (r *report) err() error {
	switch {
	case r.Code != 0:
		return exitcode.With(r.Code, errors.New(r.Error))
	case r.Errno != 0 && r.Error != "":
		return &saidError{r.Error, unix.Errno(r.Errno)}
	case r.Errno != 0:
		return unix.Errno(r.Errno)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// saidError is an error number in the words of who met it.
type saidError struct {
	text  string
	errno unix.Errno
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.errno }

// hands is one side. What it opens to keep stays open under its name.
type hands struct {
	source string
	fd     int // of source
	dir    *workDir
	kept   map[string]*os.File
	store  fusefs.Storage
	mount  *mount
	// private: the process has a mount namespace of its own.
	private bool
}

// ServeHands does the orders that come in, one a line.
func ServeHands(source string, private bool, in io.Reader, out io.Writer) error {
	h := &hands{source: source, fd: -1, kept: map[string]*os.File{}, private: private}
	defer h.unmount()
	r := bufio.NewReaderSize(in, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return nil // who gives the orders is gone, or talks too much
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			return err
		}
		b, err := json.Marshal(h.do(&o))
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
}

const (
	maxLine     = 64 << 10 // of an order or a report, in bytes
	mostOfOrder = 10_000   // times that something is to be done
)

func (h *hands) do(o *order) *report {
	r := &report{}
	err := h.try(o, r)
	if err == nil {
		return r
	}
	r.Missing = errors.Is(err, fs.ErrNotExist)
	errno, isErrno := err.(unix.Errno)
	switch {
	case isErrno:
		r.Errno = int(errno)
	default:
		r.Error = err.Error()
		if e, ok := errors.AsType[unix.Errno](err); ok {
			r.Errno = int(e)
		}
	}
	r.Code, _ = exitcode.Given(err)
	return r
}

func (h *hands) try(o *order, r *report) error {
	switch o.Op {
	case "hello":
		r.Host, _ = os.Hostname()
		r.Time = time.Now().UnixNano()
		return nil
	case "open":
		return h.open(r)
	case "make", "find":
		if h.fd < 0 || h.dir != nil {
			return errors.New("out of order")
		}
		place := findWorkDir
		if o.Op == "make" {
			place = makeWorkDir
		}
		var err error
		h.dir, err = place(h.fd, o.Data)
		return err
	}
	if h.dir == nil || o.Count < 0 || o.Count > mostOfOrder || o.Op == "mount" && h.mount != nil {
		return errors.New("out of order")
	}
	switch o.Op {
	case "mount":
		if !h.private {
			return unix.EPERM
		}
		var err error
		h.mount, err = startMount(h.dir.dir)
		return err
	case "turn":
		if h.mount == nil {
			return errors.New("out of order")
		}
		return h.mount.turn(o.Count, strings.Split(o.Data, ","), r)
	case "sweep":
		h.unmount()
		h.dir.sweep()
		return nil
	case "tidy":
		h.unmount()
		return h.dir.remove()
	}
	return h.inDir(o, r)
}

// inDir does what an order wants of the files in the directory.
func (h *hands) inDir(o *order, r *report) error {
	switch o.Op {
	case "write": // and sync, and close
		return h.dir.put(o.Name, o.Data)
	case "overwrite":
		f, err := h.dir.open(o.Name, os.O_WRONLY)
		if err != nil {
			return err
		}
		return writeSynced(f, o.Data)
	case "read": // opens anew
		var err error
		r.Data, err = h.dir.get(o.Name)
		return err
	case "keep":
		f, err := h.dir.open(o.Name, os.O_RDWR|os.O_CREATE)
		if err == nil {
			h.keep(o.Name, f)
		}
		return err
	case "read-kept":
		return h.readKept(o, r)
	case "stat":
		return h.stat(o, r)
	case "list":
		return h.list(o, r)
	case "remove":
		if err := check(o.Name); err != nil {
			return err
		}
		return unix.Unlinkat(h.dir.dir, o.Name, 0)
	case "rename":
		if err := check(o.Name, o.To); err != nil {
			return err
		}
		return unix.Renameat(h.dir.dir, o.Name, h.dir.dir, o.To)
	case "link":
		return h.link(o.Name, o.To)
	case "flock", "fcntl":
		return h.lock(o)
	case "race-excl", "race-link":
		return h.race(o, r)
	case "read-often":
		return h.readOften(o, r)
	}
	return fmt.Errorf("this side does not know %q: use the same version of dmxfs on both", o.Op)
}

// open looks at the directory that is to be examined.
func (h *hands) open(r *report) error {
	real, err := RealPath(h.source)
	if err != nil {
		return fmt.Errorf("cannot use the directory: %w", err)
	}
	all, err := mountinfo.Read()
	if err != nil {
		return err
	}
	if m, ok := mountinfo.Holding(all, real); ok && m.Type == fusefs.MountType {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s is a dmxfs mount: name the shared directory that it is over, or unmount it first", h.source))
	}
	if h.private {
		leaveMounts(all, real)
	}
	err = retryEINTR(func() (err error) {
		h.fd, err = unix.Open(real, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err == unix.ENOTDIR {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s is not a directory", h.source))
	}
	if err != nil {
		return fmt.Errorf("cannot use the directory %s: %w", h.source, err)
	}
	if h.store, err = fusefs.StorageOf(h.fd); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return err
	}
	r.Storage, r.Dev, r.Real = &h.store, st.Dev, []byte(real)
	return nil
}

// RealPath is the absolute path without symbolic links.
func RealPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(real)
}

// leaveMounts detaches the copies of mounts by FUSE that are of no use for dir
// from this process's own namespace: they would keep their daemons from ending.
func leaveMounts(all []mountinfo.Mount, dir string) {
	for _, m := range slices.Backward(all) {
		if strings.HasPrefix(m.Type, "fuse") && dir != m.Point && !strings.HasPrefix(dir, m.Point+"/") {
			_ = unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
}

func (h *hands) unmount() {
	if h.mount != nil {
		h.mount.end()
		h.mount = nil
	}
}

func (h *hands) keep(name string, f *os.File) {
	if old := h.kept[name]; old != nil {
		old.Close()
	}
	h.kept[name] = f
}

func (h *hands) readKept(o *order, r *report) error {
	f := h.kept[o.Name]
	if f == nil {
		return errors.New("not open")
	}
	b := make([]byte, 100)
	n, err := f.ReadAt(b, 0)
	r.Data = string(b[:n])
	if isEOF(err) {
		return nil
	}
	return err
}

func (h *hands) stat(o *order, r *report) error {
	if err := check(o.Name); err != nil {
		return err
	}
	var st unix.Stat_t
	err := unix.Fstatat(h.dir.dir, o.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
	r.Size, r.Ino, r.Time = st.Size, st.Ino, st.Mtim.Nano()
	return err
}

// list tells the names that begin so, and the size of another file.
func (h *hands) list(o *order, r *report) error {
	all, err := h.dir.list()
	if o.To != "" && h.stat(&order{Name: o.To}, r) != nil {
		r.Size = -1
	}
	for _, name := range all {
		if strings.HasPrefix(name, o.Name) && check(name) == nil {
			r.Names = append(r.Names, name)
		}
	}
	return err
}

func (h *hands) link(from, to string) error {
	if err := check(from, to); err != nil {
		return err
	}
	return unix.Linkat(h.dir.dir, from, h.dir.dir, to, 0)
}

func (h *hands) lock(o *order) error {
	f := h.kept[o.Name]
	if f == nil {
		return errors.New("not open")
	}
	if o.Op == "flock" {
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// race tries to be the first to make o.Count names, and tells which it made.
// Not all storage says EEXIST: what fails, and is there, somebody else has made.
// Each link is of a file of its own: some storage bounds the names of a file.
func (h *hands) race(o *order, r *report) error {
	for i := range o.Count {
		name := fmt.Sprintf("%s-%d", o.Name, i)
		if o.Op == "race-link" {
			if err := h.dir.put(fmt.Sprintf("%s-%d", o.To, i), o.To); err != nil {
				return err
			}
		}
		if err := check(name); err != nil {
			return err
		}
	}
	for i := range o.Count {
		name := fmt.Sprintf("%s-%d", o.Name, i)
		var err error
		if o.Op == "race-link" {
			err = h.link(fmt.Sprintf("%s-%d", o.To, i), name)
		} else {
			var fd int
			if fd, err = h.dir.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL); err == nil {
				unix.Close(fd)
			}
		}
		var st unix.Stat_t
		switch {
		case err == nil:
			r.Names = append(r.Names, name)
		case errors.Is(err, fs.ErrExist):
		case unix.Fstatat(h.dir.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil:
			return err
		default:
			r.Data = err.Error()
		}
	}
	return nil
}

// readOften counts the times that a file is neither the old nor the new one.
func (h *hands) readOften(o *order, r *report) error {
	for end := time.Now().Add(5 * time.Second); int(r.Size) < o.Count && time.Now().Before(end); r.Size++ {
		s, err := h.dir.get(o.Name)
		if err != nil || !strings.HasPrefix(s, "version ") || len(s) != len("version 000") {
			r.Count++
			r.Data = fmt.Sprintf("%q, %v", s, err)
		}
	}
	return nil
}

func writeSynced(f *os.File, data string) error {
	_, err := f.WriteAt([]byte(data), 0)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// retryEINTR repeats a call that a signal interrupted: the Go runtime sends some
// to itself.
func retryEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
