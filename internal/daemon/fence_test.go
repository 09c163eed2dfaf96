package daemon

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// What a fence command says may have passwords in it: it is in a file for root.
func TestWhatAFenceCommandSaysIsNotTold(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("/bin/sh"); err != nil {
		t.Skip(err)
	}
	cfg := config.Config{State: t.TempDir(), FenceCommand: "echo password=x; exit 3"}
	for range 2 { // the second one replaces what the first has said
		err := runFence(t.Context(), cfg, member.Member{})
		path := (&statedir.Dir{Path: cfg.State}).File(fenceFile)
		if err == nil || strings.Contains(err.Error(), "password") || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v", err)
		}
		b, rerr := os.ReadFile(path)
		if st, serr := os.Stat(path); rerr != nil || serr != nil || string(b) != "password=x\n" || st.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", b, rerr, serr)
		}
	}
	if list, _ := os.ReadDir(cfg.State); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
	cfg.FenceCommand = "exit 3"
	if err := runFence(t.Context(), cfg, member.Member{}); err == nil || !strings.Contains(err.Error(), "said nothing") {
		t.Errorf("error %v", err)
	}
}

// A fence command has succeeded when it says so, also if something that it has
// left in the background has its output open.
func TestAFenceCommandMayLeaveAProcessBehind(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("/bin/sh"); err != nil {
		t.Skip(err)
	}
	cfg := config.Config{State: t.TempDir(), FenceCommand: "sleep 3 & exit 0"}
	if err := runFence(t.Context(), cfg, member.Member{}); err != nil {
		t.Error(err)
	}
	cfg.FenceCommand = "sleep 3 & exit 3"
	if err := runFence(t.Context(), cfg, member.Member{}); err == nil {
		t.Error("it has failed")
	}
}
