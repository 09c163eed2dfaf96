package fusefs

import (
	"os"
	"strconv"
	"strings"
)

// readAheadKB is how far the kernel reads ahead of a program, in KiB. Of
// itself a FUSE mount has 128, which is one request, so that storage and
// program wait for each other in turns; more cannot be negotiated
// (max_readahead of FUSE_INIT can only be lowered).
const readAheadKB = 512

// readAheadFile is the file of sysfs(5) that has the read-ahead of a mount.
func (m mountpoint) readAheadFile() string {
	return "/sys/class/bdi/0:" + m.number + "/read_ahead_kb"
}

// raiseReadAhead lets the kernel read ahead by readAheadKB. Only root may, and
// only where sysfs can be written (often not in a container); more that
// somebody else has set stays. It comes after FUSE_INIT was answered, which
// sets the value.
func (m mountpoint) raiseReadAhead() error {
	b, err := os.ReadFile(m.readAheadFile())
	if err != nil {
		return err
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || now >= readAheadKB {
		return err
	}
	return os.WriteFile(m.readAheadFile(), []byte(strconv.Itoa(readAheadKB)), 0)
}
