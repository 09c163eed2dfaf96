package waitgraph

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	at := begin.Add(time.Minute)
	const held = "\n  for process 1 (prog1) on host a, which holds it for writing since 2026-11-23T03:00:01.000Z (59s)"
	const frees = "\nend of the chain: process 1 (prog1) on host a holds a write lock (flock) on x, and waits for no lock" +
		"\n  what frees it: process 1 unlocks or closes the file, or ends; or: dmxfs locks break x --class flock --host a --pid 1 --reason TEXT"
	for _, x := range []struct {
		name, in string
		target   Target
		want     string
	}{
		{"a process that does not wait", "a\na 1 held x flock W 0-0 1", Target{PID: 1}, ""},
		{"a process", "a\nb\na 1 held x flock W 0-0 1\nb 2 waiting x flock W 0-0 2 for a", Target{PID: 2},
			"process 2 (prog2) on host b waits for a write lock (flock) on x since 2026-11-23T03:00:02.000Z (58s)" + held + frees},
		{"of several of that number the one here", "a\nb\na 1 held x flock W 0-0 1\na 2 waiting x flock W 0-0 3 for 1\nb 2 waiting x flock W 0-0 2 for a", Target{PID: 2},
			"process 2 (prog2) on host a waits for a write lock (flock) on x since 2026-11-23T03:00:03.000Z (57s)" + held + frees},
		{"one of another host", "a\nb\na 1 held x flock W 0-0 1\na 2 waiting x flock W 0-0 3 for 1\nb 2 waiting x flock W 0-0 2 for a", Target{PID: 2, Host: "b"},
			"process 2 (prog2) on host b waits for a write lock (flock) on x since 2026-11-23T03:00:02.000Z (58s)" + held + frees},
		{"up to the end", "a\nb\na 1 held x flock W 0-0 1\nb 2 held y posix R 5-9 1\nb 2 waiting x flock W 0-0 2 for a\na 3 waiting y posix W 0-6 3 for b", Target{Path: "y"},
			"process 3 (prog3) on host a waits for a write lock (posix, bytes 0-5) on y since 2026-11-23T03:00:03.000Z (57s)" +
				"\n  for process 2 (prog2) on host b, which holds it for reading since 2026-11-23T03:00:01.000Z (59s); it waits itself for a write lock (flock) on x since 2026-11-23T03:00:02.000Z (58s)" +
				strings.ReplaceAll(held, "\n", "\n  ") + frees},
		{"a cycle", "a\nb\na 1 held x flock W 0-0 1\nb 2 held y flock W 0-0 1\na 1 waiting y flock W 0-0 2 for b\nb 2 waiting x flock W 0-0 3 for a", Target{PID: 1},
			"process 1 (prog1) on host a waits for a write lock (flock) on y since 2026-11-23T03:00:02.000Z (58s), in a cycle" +
				"\n  for process 2 (prog2) on host b, which holds it for writing since 2026-11-23T03:00:01.000Z (59s); it waits itself for a write lock (flock) on x since 2026-11-23T03:00:03.000Z (57s), in a cycle" +
				"\n    for process 1 (prog1) on host a, which holds it for writing since 2026-11-23T03:00:01.000Z (59s); told of above" +
				"\nend of the chain: these wait for one another: process 1 (prog1) on host a, process 2 (prog2) on host b" +
				"\n  what frees it: end one of them, unless another thread of it goes on and unlocks: nothing else will (flock knows no EDEADLK)"},
		{"a silent host", "a silent\nb\nb 2 waiting x flock W 0-0 2 for a", Target{PID: 2},
			"process 2 (prog2) on host b waits for a write lock (flock) on x since 2026-11-23T03:00:02.000Z (58s)" +
				"\n  for host a, which does not answer" +
				"\nend of the chain: host a does not answer, so which of its processes is in the way is not known: no answer within 2s" +
				"\n  what frees it: host a goes on, or the others go on without it: by themselves when its locks must have ended, at the latest after \"dmxfs peers remove id-a\"" +
				"\nhost a (id-a) is silent, so what its programs hold and wait for is not in this: no answer within 2s"},
		{"a host that grants nothing", "a suspended\na 2 waiting x flock W 0-0 2", Target{Path: "ix"},
			"process 2 (prog2) on host a waits for a write lock (flock) on x since 2026-11-23T03:00:02.000Z (58s)" +
				"\nend of the chain: nobody is in the way, but host a grants no locks now: it is suspended" +
				"\n  what frees it: host a is sure again of the others and of the storage, see \"dmxfs status\" there"},
		{"one that was expelled", "a expelled\nb", Target{Path: "x"},
			"host a (id-a) was expelled 1m0s ago; what its programs held is free: no answer within 2s"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := Build(at, "id-a", answers(t, x.in)).Why(x.target)
			if got := strings.Join(s.Lines(), "\n"); got != x.want {
				t.Errorf("got\n%s\nwant\n%s", got, x.want)
			}
			if b, err := json.Marshal(s); err != nil || strings.Contains(string(b), "null,\"ends\"") {
				t.Errorf("JSON %s, error %v", b, err)
			}
		})
	}
}

// TestBreakCommand: what a person copies into a shell is one word each, whatever
// the file is called.
func TestBreakCommand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"x": "x", "a b": "'a b'", "it's": `'it'\''s'`, "-rf": "'-rf'", "$(id)": "'$(id)'", "": "''"} {
		if got := shellQuote(in); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", in, got, want)
		}
	}
}
