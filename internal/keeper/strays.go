package keeper

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Of are the keepers that end with the other end of the pipe lifeline, whoever has started
// them: also those of processes that were killed before they could tell of them.
func Of(lifeline *os.File) (list []ID, err error) {
	var st unix.Stat_t
	raw, err := lifeline.SyscallConn()
	if err != nil {
		return nil, err
	}
	var stat error
	if err := errors.Join(raw.Control(func(fd uintptr) { stat = unix.Fstat(int(fd), &st) }), stat); err != nil {
		return nil, fmt.Errorf("the pipe that keepers end with: %w", err)
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	comm := unix.ByteSliceToString(name[:]) + "\n"
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(b) != comm {
			continue
		}
		// Before it is looked at: the number may be another process's later.
		if start, err := startOf(pid); err == nil && hasOpen(pid, &st) {
			list = append(list, ID{pid, start})
		}
	}
	return list, nil
}

// hasOpen reports whether a process has the file open that st is of.
func hasOpen(pid int, st *unix.Stat_t) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	pipe := fmt.Sprintf("pipe:[%d]", st.Ino)
	for _, f := range files {
		if to, err := os.Readlink(dir + "/" + f.Name()); err == nil && to == pipe {
			return true
		}
	}
	return false
}
