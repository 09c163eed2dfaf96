package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Badger writes its files through memory maps. A page that the disk has no
// space for is then not an error of a call but a SIGBUS, which ends the daemon
// with all its locks. So the journal does not write at all when the file system
// has less free space than all that Badger could still do by itself would
// take, with a reserve for others that fill the disk at the same time. (What
// can't be seen in this way is a quota of the user; root has none; and who fills the
// disk faster than that. Then see badgerStore.mend.)
const (
	// roomLog: the log of a memory table, with the transaction that fills it.
	roomLog = memTable + memTable/4
	// roomTables: the tables of two full memory tables, and what is copied
	// when all tables of the first level are merged, with tailBytes of the last.
	roomTables = (2 + tablesBeforeMerge + 1) * (memTable + memTable/4)
	// roomNeeded is about 50 MiB.
	roomNeeded = roomLog + roomTables + 8<<20
	// roomAgain is what it takes to begin again after the disk was full.
	roomAgain = roomNeeded + 8<<20

	// openDescriptors is more than Badger opens at once when it is opened or
	// merges tables, writeDescriptors when it writes.
	openDescriptors  = 64
	writeDescriptors = 4
)

// noSpaceError says that a disk is full, and what would help.
type noSpaceError struct {
	dir        string
	free, need uint64
}

func (e *noSpaceError) Error() string {
	return fmt.Sprintf("the disk under %s is full: %d MiB are free, %d MiB are needed; free some space there",
		e.dir, e.free>>20, e.need>>20)
}

func (e *noSpaceError) Is(target error) bool { return target == ErrNoSpace }

// space checks that at least need bytes are free for files in dir.
func space(dir string, need uint64) error {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
	// What is reserved for root is not counted: it is what saves a daemon of
	// root's from others that fill the disk while it writes.
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return &noSpaceError{dir: dir, free: free, need: need}
	}
	return nil
}

// descriptors checks that n files more can be opened.
func descriptors(n int) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range n {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("no more files can be opened (raise the limit of open files): %w", err)
		}
		fds = append(fds, fd)
	}
	return nil
}

// preallocate gives the blocks to a log that Badger has created sparse, as far
// as it writes it.
func preallocate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil // already a table
		}
		return err
	}
	defer f.Close()
	for {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, roomLog)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: path, Err: err}
	}
	return nil
}

func (s *badgerStore) room() error {
	if err := s.mend(); err != nil {
		return err
	}
	need := uint64(roomNeeded)
	if s.full {
		need = roomAgain
	}
	err := space(s.opt.Dir, need)
	s.full = err != nil
	if err == nil {
		err = descriptors(writeDescriptors)
	}
	if err == nil && s.sparse {
		if err = preallocate(s.memPath(s.mem)); err == nil {
			s.sparse = false
		}
	}
	return err
}

// roomToMerge: for the copy of all tables of the first level.
func (s *badgerStore) roomToMerge() error {
	if err := descriptors(openDescriptors); err != nil {
		return err
	}
	return space(s.opt.Dir, roomNeeded)
}

// diskUsed is what the files below dir take, in bytes.
func diskUsed(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		sum += st.Blocks * 512
		return err
	})
	return sum, err
}
