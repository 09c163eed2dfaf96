package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/keeper"
)

// startOf is when a process was started, as its keeper.ID has it.
func startOf(t *testing.T, pid int) (start uint64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if _, err := fmt.Sscan(fields[19], &start); err != nil {
		t.Fatal(err)
	}
	return start
}

// A keeper that does not end, as one that closes a file on storage that hangs, is waited for
// as long as it makes sense. Then it is told which it is, until it has ended.
func TestAKeeperThatDoesNotEnd(t *testing.T) {
	stays := exec.CommandContext(t.Context(), "cat")
	in, err := stays.StdinPipe()
	if err == nil {
		err = stays.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := stays.Process.Pid
	x := &takeover{left: &estate.Left{Estate: estate.Estate{Wills: []estate.Will{
		{PID: 1 << 30, Keeper: keeper.ID{PID: pid, Start: startOf(t, pid)}},
		{PID: 1<<30 + 1, Keeper: keeper.ID{PID: pid, Start: 1}}, // another process has its number by now
	}}}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		if err := x.problem(); err != nil {
			t.Errorf("before the time is over: %v", err)
		}
		began := time.Now()
		err := x.awaitKeepers(ctx)
		if took := time.Since(began); took != settleTime || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", pid)) || !strings.Contains(err.Error(), fmt.Sprintf("daemon %d ", 1<<30)) {
			t.Errorf("after %v: %v", took, err)
		}
	})
	if err := x.problem(); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("status tells %v", err)
	}
	in.Close()
	if err := stays.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := x.problem(); err != nil {
		t.Errorf("when it has ended status tells %v", err)
	}
	if err := x.awaitKeepers(context.Background()); err != nil {
		t.Error(err)
	}
}

// It is not looked for garbage until locks can be had, or for a while; but memory has a limit.
func TestNoGarbageIsLookedForAtFirst(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	for _, joins := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := taker{goer{&daemon{joined: make(chan struct{}), takeover: takeover{gc: percent}}}}
			debug.SetGCPercent(-1)
			began, ended := time.Now(), make(chan struct{})
			go func() { d.collectAgain(t.Context()); close(ended) }()
			synctest.Wait()
			if limit := debug.SetMemoryLimit(-1); limit >= before || limit < catchUpMemory {
				t.Errorf("meanwhile the limit of memory is %d", limit)
			}
			want := catchUp
			if joins {
				close(d.joined)
				want = 0
			}
			if <-ended; time.Since(began) != want {
				t.Errorf("joins %v: it took %v", joins, time.Since(began))
			}
			if now := debug.SetGCPercent(-1); now != percent {
				t.Errorf("afterwards GOGC is %d, and was %d", now, percent)
			}
		})
		if limit := debug.SetMemoryLimit(-1); limit != before {
			t.Errorf("afterwards the limit of memory is %d, and was %d", limit, before)
		}
	}
}
