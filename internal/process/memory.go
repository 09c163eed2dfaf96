package process

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
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
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uint64 // the mapping that the lines are about
	var asInFile bool
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		name, rest, _ := strings.Cut(line, ":")
		if where, mode, ok := strings.Cut(name, " "); ok { // the first line of a mapping
			mode, _, _ = strings.Cut(mode, " ")
			lo, hi, _ := strings.Cut(where, "-")
			if from, err = strconv.ParseUint(lo, 16, 64); err == nil {
				to, err = strconv.ParseUint(hi, 16, 64)
			}
			if err != nil {
				return err
			}
			asInFile = strings.HasSuffix(line, " "+exe) && !strings.Contains(mode, "w")
			continue
		}
		switch name {
		case "Anonymous", "Swap":
			asInFile = asInFile && strings.TrimSpace(rest) == "0 kB"
		case "VmFlags": // the last line of a mapping
			if !asInFile {
				continue
			}
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED); errno != 0 {
				return fmt.Errorf("madvise: %w", errno)
			}
		}
	}
	return lines.Err()
}
