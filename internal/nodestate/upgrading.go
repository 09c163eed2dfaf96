package nodestate

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/statedir"
)

// upgradingFile in a state directory says until when its daemon may look like one that
// cannot end, in ms of CLOCK_BOOTTIME: see [NoteUpgrading].
const upgradingFile = "upgrading"

// NoteUpgrading says that the daemon of s is about to execute another program. While it
// does so it looks like one that was killed and cannot end.
func NoteUpgrading(s *statedir.Dir, log *slog.Logger) {
	until := strconv.FormatInt(boottime.Milliseconds()+UpgradingTime.Milliseconds(), 10)
	if err := os.WriteFile(s.File(upgradingFile), []byte(until+"\n"), 0o600); err != nil {
		log.Warn("dmxfs unmount may take this daemon for one that cannot end", "err", err)
	}
}

// Upgrading reports whether a daemon of a state directory may just execute another
// program.
func Upgrading(state string) bool {
	b, err := os.ReadFile(filepath.Join(state, upgradingFile))
	if err != nil {
		return false
	}
	until, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	left := until - boottime.Milliseconds()
	return err == nil && left > 0 && left <= UpgradingTime.Milliseconds() // else it is of before the host was booted
}

// UpgradingTime is for how long a daemon that executes another program is not taken for
// one that cannot end: execve(2) waits for all its threads.
const UpgradingTime = 10 * time.Second
