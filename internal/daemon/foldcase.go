package daemon

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// Storage that takes F and f for one name (SMB, casefold) has more paths for a
// file than one. Where locks go by path, such a file has more than one lock.
// Which names are the same depends on the storage and its version of Unicode,
// so paths are not made alike here: such storage needs inode numbers.

// foldsCase reports whether the shared directory is on such storage. If it was
// not shared before, a directory is made in it for a moment.
func foldsCase(root *os.File) (bool, error) {
	fd := int(root.Fd())
	var st unix.Stat_t
	if unix.Fstatat(fd, register.Name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return fusefs.FoldsCase(fd), nil
	}
	name := fmt.Sprintf("%s-case-%d", register.Name, os.Getpid())
	if err := unix.Mkdirat(fd, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("make a directory to find out whether names differ in case: %w", err)
	}
	folds := unix.Fstatat(fd, strings.ToUpper(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("remove a directory that was to find out whether names differ in case: %w", err)
	}
	return folds, nil
}

// refuseFolded refuses storage that folds case where files are told apart by
// path, before anything is founded there.
func refuseFolded(cfg config.Config, root *os.File, storage fusefs.Storage, reg *register.Dir) error {
	if cfg.Join && !reg.HasCluster() {
		return nil // nothing is made there
	}
	if fileIDOf(cfg.FileID, storage, 0, false).name != member.FileIDPath {
		return nil
	}
	folds, err := foldsCase(root)
	if err != nil {
		return exitcode.With(trouble.StorageCode(err), err)
	}
	if folds {
		return exitcode.With(exitcode.Refused, fmt.Errorf("%s: this storage (%s) takes names that differ in case only for one file, and files are told apart by path here, so that one file would have several locks: "+
			"mount with --file-id=inode, if the storage shows all hosts the same inode numbers (`dmxfs doctor` finds out)", cfg.Source, storage.Type))
	}
	return nil
}

// foldedText is what to add to a refusal that advises to go by path.
const foldedText = "; but this storage takes names that differ in case only for one file, so that this host cannot go by path: have all hosts go by inode numbers (--file-id=inode)"
