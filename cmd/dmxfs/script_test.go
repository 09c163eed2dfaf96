package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command lines in testdata/script: what they print, and
// their exit numbers. Mounts are left to the other tests, but for [mount].
func TestScripts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			bin := filepath.Join(e.WorkDir, "bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			for _, name := range []string{"dmxfs", "mount.fuse.dmxfs"} {
				if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
					return err
				}
			}
			e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv(asMain, "1")
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "home"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			_, err := os.Stat("/dev/fuse")
			return cond == "mount" && err == nil && os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
	})
}

// exits N COMMAND ARG... runs a command, which must end with exit number N.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = err.Error()
	}
	if want := args[0]; got != want && got != "exit status "+want {
		ts.Fatalf("%v: %s, want exit status %s", args[1:], got, want)
	}
}
