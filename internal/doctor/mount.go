package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/locks"
)

// What the locks make of a storage is tried with the mount that will be used on
// it: each side mounts the doctor's directory, where no other process sees it,
// and an engine that grants everything hands the locks to and fro.

// MountCommand is the hidden command of the process that serves such a mount. It
// has the directory as descriptor 3, and the mount point as its argument.
const MountCommand = "doctor-mount"

// freeLocker grants everything, as an engine does whose node was given the
// lock by another one that had it for writing. Programs of two sides take turns
// of themselves.
type freeLocker struct {
	server *fusefs.Server
	began  time.Time

	mu   sync.Mutex
	here map[locks.Key]bool // false: the other side has had it since
}

func (l *freeLocker) Lock(_ <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	l.mu.Lock()
	here := l.here[r.Key]
	l.here[r.Key] = here || !r.Blind
	l.mu.Unlock()
	if !here && !r.Blind && r.Born == 0 {
		r.WillWait()
		if err := l.server.Refresh(r.Key); err != nil {
			return locks.Grant{}, err
		}
	}
	return locks.Grant{Token: 1, Tenure: 1}, nil
}

// give hands all locks to the other side.
func (l *freeLocker) give() error {
	l.mu.Lock()
	var keys []locks.Key
	for k, here := range l.here {
		if here {
			keys = append(keys, k)
			l.here[k] = false
		}
	}
	l.mu.Unlock()
	var failed error
	for _, k := range keys {
		failed = errors.Join(failed, l.server.Flush(k))
	}
	return failed
}

func (l *freeLocker) LockNow(*locks.Request) (locks.Grant, bool)                    { return locks.Grant{}, false }
func (l *freeLocker) Unlock(locks.Key, locks.OwnerID, locks.Range) bool             { return false }
func (l *freeLocker) UnlockOwner(locks.Key, locks.OwnerID)                          {}
func (l *freeLocker) UnlockHandle(locks.Key, locks.HandleID, string)                {}
func (l *freeLocker) Closing(locks.Key, locks.HandleID)                             {}
func (l *freeLocker) Wanted(locks.Key) locks.Mode                                   { return 0 }
func (l *freeLocker) Share(locks.Key, locks.HandleID, string) bool                  { return false }
func (l *freeLocker) Moment() locks.Moment                                          { return locks.Moment(time.Since(l.began)) }
func (l *freeLocker) Tenure() locks.Tenure                                          { return 1 }
func (l *freeLocker) Admit(<-chan struct{}, locks.Tenure) error                     { return nil }
func (l *freeLocker) Test(<-chan struct{}, *locks.Request) (*locks.Conflict, error) { return nil, nil }

// ServeMount mounts the directory that is open as root, and gives the
// locks away for each line that comes in.
func ServeMount(ctx context.Context, root *os.File, point string, in io.Reader, out io.Writer) error {
	server, err := fusefs.New(fusefs.Options{Root: root, MountPoint: point, Source: "dmxfs-doctor", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	l := &freeLocker{server: server, began: time.Now(), here: map[locks.Key]bool{}}
	go func() {
		defer server.Abort() // whatever is under way: its programs are gone
		fmt.Fprintln(out, "ready")
		for lines := bufio.NewScanner(in); lines.Scan(); {
			go func() {
				says := "given"
				if err := l.give(); err != nil {
					says = strings.ReplaceAll(err.Error(), "\n", "; ")
				}
				fmt.Fprintln(out, says)
			}()
		}
	}()
	return server.Serve(ctx, l)
}

// mount is such a mount, as hands have it.
type mount struct {
	point string
	in    io.WriteCloser
	out   *bufio.Reader
	kept  map[string]int
}

// startMount mounts the doctor's directory. The process has to have a mount
// namespace of its own.
func startMount(dir int) (*mount, error) {
	point, err := os.MkdirTemp("", "dmxfs-doctor-")
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	root := os.NewFile(uintptr(fd), dirName)
	defer root.Close()
	cmd := exec.Command("/proc/self/exe", MountCommand, "--", point)
	cmd.ExtraFiles = []*os.File{root}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var says strings.Builder
	cmd.Stderr = &says
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &mount{point, in, bufio.NewReader(out), map[string]int{}}
	if line, _ := m.out.ReadString('\n'); line != "ready\n" {
		_ = cmd.Wait()
		_ = os.Remove(point)
		return nil, fmt.Errorf("mount: %s", strings.TrimSpace(says.String()))
	}
	return m, nil
}

// give hands all locks to the other side.
func (m *mount) give() error {
	if _, err := io.WriteString(m.in, "give\n"); err != nil {
		return err
	}
	line, err := m.out.ReadString('\n')
	if err == nil && line != "given\n" {
		err = errors.New(strings.TrimSpace(line))
	}
	return err
}

// end unmounts.
func (m *mount) end() {
	for _, fd := range m.kept {
		unix.Close(fd)
	}
	m.in.Close()
	_, _ = io.Copy(io.Discard, m.out) // until it has ended
	_ = os.Remove(m.point)
}
