package locktest

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/mutant"
)

// A Mutant is a planted bug: one place of the package under test, written
// otherwise. It shows that the harness would find that bug, and that the line
// is needed.
type Mutant struct {
	Name string // what the bug is
	File string
	// Old is in the file exactly once; New takes its place.
	Old, New string
	// Also are other places that the same bug is in.
	Also []mutant.Edit
	// Test finds it; TestSimulate if it is empty. That one must call
	// [Simulate], and may see only what users of locks see; all that machines
	// say of themselves only if the bug is Inside: it costs time, messages or
	// memory, but no promise.
	Test   string
	Inside bool
	// Paper: the paper has it so. These are planted whenever tests run in full.
	Paper bool
}

// Mutants plants each bug, alone, and runs the test that must find it. Since each
// takes a build, only a sample is planted: every fifth and those of papers if
// tests run in full, every fortieth otherwise, and all with -locktest.long. The
// package is built with the changed file as an overlay, so nothing of it is made
// for testing.
func Mutants(t *testing.T, mutants []Mutant) {
	if testing.Short() {
		t.Skip("builds the package once for each mutant; not with -short")
	}
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool to build mutants with: ", err)
	}
	sample := long.OrPure(40, 5)
	for i, m := range mutants {
		if !*flagLong && i%sample != 0 && (!m.Paper || !long.OrPure(false, true)) {
			m.plant(t) // at least there is still something to change
			continue
		}
		t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			test := m.Test
			if test == "" {
				test = "TestSimulate"
			}
			args := []string{"test", "-vet=off", "-count=1", "-timeout=2m", "-overlay=" + m.plant(t), "-run=^" + test + "$", ".",
				"-locktest.seeds=20000", "-locktest.shrink=false"}
			if m.Test == "" && !m.Inside {
				args = append(args, "-locktest.blind")
			}
			cmd := exec.Command(gotool, args...)
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			found := regexp.MustCompile(`(?m)seed (\d+) .*\): (.*)$`).FindSubmatch(out)
			switch {
			case err == nil:
				t.Errorf("%s does not find it", test)
			case !strings.Contains(string(out), "--- FAIL: "+test) || m.Test == "" && found == nil:
				t.Errorf("%s failed, but not by what it checks:\n%s", test, out)
			case m.Test == "":
				t.Logf("seed %s: %.150s", found[1], found[2])
			}
		})
	}
}

// plant is an overlay that has the bug.
func (m Mutant) plant(t *testing.T) string {
	t.Helper()
	return mutant.Overlay(t, append([]mutant.Edit{{File: m.File, Old: m.Old, New: m.New}}, m.Also...), nil)
}
