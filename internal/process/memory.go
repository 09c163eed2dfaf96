package process

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBackMemory lets the kernel have memory that was needed only to start. The
// program is large, and most of what of it is resident was used before main, by
// packages that prepare themselves: the watcher uses hardly any of it again.
// Pages of the program come back from its file when they are used.
func GiveBackMemory(log *slog.Logger) {
	debug.FreeOSMemory()
	if err := dropProgram(); err != nil {
		log.Debug("pages of the program cannot be given back", "err", err)
	}
}

// dropProgram drops the pages of this program that are as its file has them.
// What cannot be written to is not always: a position-independent program has
// read-only data that was relocated in place. See proc_pid_smaps(5).
func dropProgram() error {
	Remapping.Lock()
	defer Remapping.Unlock()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	all, err := Mappings()
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.File != exe || strings.Contains(m.Mode, "w") || m.Own > 0 {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.From, m.To-m.From, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
