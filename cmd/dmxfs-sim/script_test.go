package main

import (
	"fmt"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dmxfs/dmxfs/internal/long"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dmxfs-sim": main})
}

// TestScripts runs the command lines in testdata/script: what they print, and
// their exit numbers.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Condition: func(cond string) (bool, error) {
			if cond == "full" {
				return long.OrPure(false, true), nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
	})
}

// exits N COMMAND ARG... runs a command, which must end with exit number N.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	if err == nil || err.Error() != "exit status "+args[0] {
		ts.Fatalf("%v: %v, want exit status %s", args[1:], err, args[0])
	}
}
