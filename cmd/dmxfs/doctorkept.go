package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/version"
)

// keptVerdict is what the doctor last found of a directory, for `dmxfs support`: who is
// asked for help wants to know, and an examination takes too long to be made anew.
type keptVerdict struct {
	Time    time.Time `json:"time"`
	Version string    `json:"dmxfs"` // which examined it
	doctor.Examination
}

// verdictFile is where it is kept. A directory may be examined before there is a mount
// of it, so that it is not in the state directory of one.
func verdictFile(real string) string {
	return filepath.Join(config.StateHome(), "doctor", config.MountName(real)+".json")
}

// keepVerdict keeps what was found of all the directories that are of this host.
func keepVerdict(x doctor.Examination, now time.Time) error {
	b, err := json.MarshalIndent(keptVerdict{now.UTC(), version.String(), x}, "", "  ")
	for _, source := range x.Real {
		file := verdictFile(source)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(file), 0o700)
		}
		tmp := fmt.Sprintf("%s.%d", file, os.Getpid())
		if err == nil {
			err = os.WriteFile(tmp, b, 0o600)
		}
		if err == nil {
			err = os.Rename(tmp, file)
		}
	}
	if err != nil {
		return fmt.Errorf("keep the verdict for dmxfs support: %w", err)
	}
	return nil
}

// supportVerdict is the last verdict on the directory below a mount. It waits for
// storage that hangs.
func supportVerdict(source string) ([]byte, error) {
	real, err := doctor.RealPath(source)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(verdictFile(real))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this user has not run dmxfs doctor %s on this host", source)
	}
	return b, err
}
