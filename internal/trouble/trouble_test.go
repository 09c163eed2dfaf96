package trouble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Who cannot listen is told what to do, as far as the kernel says why.
func TestListening(t *testing.T) {
	for errno, advice := range map[unix.Errno]string{
		unix.EADDRINUSE:    "ss -ltnp shows who",
		unix.EADDRNOTAVAIL: "ip addr shows",
		unix.EACCES:        "ports below 1024 are for root",
		unix.ENOBUFS:       "",
	} {
		err := Listening(fmt.Errorf("tcp: %w", os.NewSyscallError("bind", errno)))
		want := "listen for other daemons: tcp: bind: " + errno.Error()
		rest, ok := strings.CutPrefix(err.Error(), want)
		if !ok || !errors.Is(err, errno) || !strings.Contains(rest, advice) || (advice == "") != (rest == "") {
			t.Errorf("%s: %v", unix.ErrnoName(errno), err)
		}
	}
}

// Who cannot use a directory is told which one it is, and what to do.
func TestDirectory(t *testing.T) {
	cfg := config.Config{Source: "/mnt/raw", Mountpoint: "/mnt/shared"}
	over := config.Config{Source: "/mnt/shared", Mountpoint: "/mnt/shared"}
	for _, x := range []struct {
		cfg   config.Config
		path  string
		errno unix.Errno
		want  string
	}{
		{cfg, cfg.Source, unix.ENOENT, "cannot use the shared directory: stat /mnt/raw: no such file or directory: is its storage mounted on this host?"},
		{cfg, cfg.Mountpoint, unix.ENOENT, "cannot use the mount point: stat /mnt/shared: no such file or directory: make it first (mkdir /mnt/shared)"},
		{over, over.Mountpoint, unix.ENOENT, "cannot use the shared directory: stat /mnt/shared: no such file or directory: is its storage mounted on this host?"},
		{cfg, cfg.Source, unix.EACCES, "cannot use the directory: stat /mnt/raw: permission denied: the user that mounts must be able to go there"},
		{cfg, cfg.Source, unix.EIO, "cannot use the directory: stat /mnt/raw: input/output error"},
	} {
		err := Directory(x.cfg, x.path, &fs.PathError{Op: "stat", Path: x.path, Err: x.errno})
		if err.Error() != x.want || !errors.Is(err, x.errno) {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
}

// A number says for good that a daemon is not to be started again, unless what is behind it
// may pass.
func TestFinal(t *testing.T) {
	cause := errors.New("cause")
	for code, want := range map[int]bool{
		exitcode.Failure: false, exitcode.Usage: true, exitcode.NoMount: false, exitcode.Refused: true, exitcode.Busy: false, exitcode.Sick: false,
	} {
		err := exitcode.With(code, cause)
		if Final(err) != want {
			t.Errorf("%d: %v", code, !want)
		}
		may := fmt.Errorf("the daemon has ended: %w", MayPass(err))
		if Final(may) || exitcode.Of(may) != code || !errors.Is(may, cause) || may.Error() != "the daemon has ended: cause" {
			t.Errorf("%d, which may pass: %v, %d, final %v", code, may, exitcode.Of(may), Final(may))
		}
	}
}

// What may pass: storage and disks that fail or are full, a host that is short of something,
// and what people do to storage. A daemon that meets it for the first time ends with a number
// that says whether it makes sense to wait.
func TestPassing(t *testing.T) {
	for _, x := range []struct {
		err     error
		passing bool
		code    int // for the shared directory
	}{
		{unix.ENOSPC, true, exitcode.Failure},
		{unix.ESTALE, true, exitcode.Failure},
		{unix.ENOMEM, true, exitcode.Failure},
		{register.ErrFull, true, exitcode.Failure},
		{register.ErrNoCluster, true, exitcode.Failure},
		{journal.ErrNoSpace, true, exitcode.Failure},
		{unix.ENOENT, true, exitcode.Refused},
		{unix.EROFS, true, exitcode.Refused},
		{register.ErrDamaged, true, exitcode.Refused},
		{register.ErrNoLink, false, exitcode.Refused},
		{register.ErrUnusable, false, exitcode.Refused},
		{errors.New("another secret"), false, exitcode.Refused},
		// Storage that cannot do what it must is refused, whatever its client says.
		{fmt.Errorf("%w: link: %w", register.ErrNoLink, unix.EIO), true, exitcode.Refused},
	} {
		err := fmt.Errorf("%s: %w", filepath.Join("dir", ".dmxfs"), x.err)
		if Passing(err) != x.passing || StorageCode(err) != x.code {
			t.Errorf("%v: may pass: %v, code %d", err, Passing(err), StorageCode(err))
		}
	}
}
