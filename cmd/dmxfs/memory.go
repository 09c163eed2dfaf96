package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// processName is what ps, top and pgrep show for the two processes of a mount.
// They run from /proc/self/exe, which would call them "exe".
const processName = "dmxfs"

// nameProcess gives this process its name. It is no harm if it has another.
func nameProcess() { _ = os.WriteFile("/proc/self/comm", []byte(processName), 0) }

// giveBack lets the kernel have memory that was needed only to start. The
// program is large, and most of what of it is resident was used before main, by
// packages that prepare themselves: the watcher uses hardly any of it again.
// Pages of the program come back from its file when they are used.
func giveBack(log *slog.Logger) {
	debug.FreeOSMemory()
	if err := dropProgram(); err != nil {
		log.Debug("pages of the program cannot be given back", "err", err)
	}
}

// dropProgram drops the pages of this program that cannot be written to, see
// proc_pid_maps(5).
func dropProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var from, to uintptr
		var mode string
		line := lines.Text()
		if !strings.HasSuffix(line, " "+exe) {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.Contains(mode, "x") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}
