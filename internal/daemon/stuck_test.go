package daemon

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// An engine that hangs cannot be asked for anything: the daemon writes down what
// it hangs in, and ends with its mount in place, dead.
func TestAStuckEngineEndsTheDaemon(t *testing.T) {
	t.Parallel()
	log := new(strings.Builder)
	d := &daemon{log: slog.New(slog.NewTextHandler(log, nil)), state: &statedir.Dir{Path: t.TempDir()}}
	nodeDone := make(chan error, 1)
	nodeDone <- cluster.ErrStuck
	// There is no engine: whatever asked it would be a panic.
	err := d.serve(t.Context(), nil, nodeDone, nil)
	if _, ok := errors.AsType[*dead](err); !ok || !errors.Is(err, cluster.ErrStuck) {
		t.Errorf("ended with %v", err)
	}
	b, err := os.ReadFile(d.state.File("stuck.txt"))
	if err != nil || !strings.Contains(string(b), "TestAStuckEngineEndsTheDaemon") {
		t.Errorf("the stacks: %v, %d bytes", err, len(b))
	}
	if !strings.Contains(log.String(), d.state.File("stuck.txt")) {
		t.Errorf("the log: %s", log)
	}
	if code := endCode(cluster.ErrStuck); code != exitcode.Failure {
		t.Errorf("exit code %d: it would not be started again", code)
	}
}

// Members that cannot be reached yet may be, so that it is tried again.
func TestEndsOfAMembershipThatMayPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[member.EndCode]int{
		member.EndLost: exitcode.Failure, member.EndUnreachable: exitcode.Failure, member.EndPartial: exitcode.Failure,
		member.EndRevoked: exitcode.Refused, member.EndTwin: exitcode.Refused, member.EndRestored: exitcode.Refused,
	} {
		if got := endCode(&cluster.Ended{End: member.End{Code: code}}); got != want {
			t.Errorf("%v: %d, want %d", code, got, want)
		}
	}
}
