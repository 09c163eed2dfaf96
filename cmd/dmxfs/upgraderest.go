package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/statedir"
)

// upgradingFile in a state directory says until when its daemon may look like one that
// cannot end, in ms of CLOCK_BOOTTIME: see mayLookDead.
const upgradingFile = "upgrading"

func noteUpgrading(s *statedir.Dir, log *slog.Logger) {
	until := strconv.FormatInt(boottime.Milliseconds()+upgradingTime.Milliseconds(), 10)
	if err := os.WriteFile(s.File(upgradingFile), []byte(until+"\n"), 0o600); err != nil {
		log.Warn("dmxfs unmount may take this daemon for one that cannot end", "err", err)
	}
}

// isUpgrading reports whether a daemon of a state directory may just execute another
// program.
func isUpgrading(state string) bool {
	b, err := os.ReadFile(filepath.Join(state, upgradingFile))
	if err != nil {
		return false
	}
	until, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	left := until - boottime.Milliseconds()
	return err == nil && left > 0 && left <= upgradingTime.Milliseconds() // else it is of before the host was booted
}
