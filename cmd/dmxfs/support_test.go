package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/version"
)

// No archive has the fence command, whatever characters it is of, and also when the
// daemon did not tell it as a secret.
func TestOptionsOfAnArchiveHaveNoFenceCommand(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(config.Config{Source: "/mnt/raw", FenceCommand: "off -p hunter22 && echo >/dev/null"})
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(withoutFence(all)); err != nil || strings.Contains(string(b), "hunter22") || !strings.Contains(string(b), "/mnt/raw") || !strings.Contains(string(b), "left out") {
		t.Errorf("%v %s", err, b)
	}
}

// The end of a log begins with a line, or is the whole of it.
func TestEndOfALog(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("one\ntwo\nthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{100: "one\ntwo\nthree\n", 14: "one\ntwo\nthree\n", 13: "two\nthree\n", 8: "three\n", 3: ""} {
		if b, err := endOf(log, most); err != nil || string(b) != want {
			t.Errorf("the last %d bytes: %v, %q, want %q", most, err, b, want)
		}
	}
}

// An archive has the doctor's last verdict on the storage, by whatever name the mount
// has it, or says that there is none.
func TestVerdictOfAnArchive(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "home"))
	raw, link := filepath.Join(dir, "raw"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(raw, 0o755), os.Symlink(raw, link)); err != nil {
		t.Fatal(err)
	}
	if b, err := supportVerdict(raw); err == nil || !strings.Contains(err.Error(), "dmxfs doctor "+raw) {
		t.Errorf("of no doctor: %v %s", err, b)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, verdict := range []string{"the first", "the last"} {
		if err := keepVerdict(doctor.Examination{Verdict: verdict, Real: []string{raw}}, now); err != nil {
			t.Fatal(err)
		}
	}
	var kept keptVerdict
	b, err := supportVerdict(link)
	if err != nil || json.Unmarshal(b, &kept) != nil || kept.Verdict != "the last" || !kept.Time.Equal(now) || kept.Version != version.String() {
		t.Errorf("%v %s", err, b)
	}
}
