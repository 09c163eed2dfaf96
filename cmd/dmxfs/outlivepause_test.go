package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// probes makes calls that nobody else has a part in, one after the other, and writes down
// those that took long, and when.
func (w *outliver) probes() func() error {
	var mu sync.Mutex
	var failed error
	name := filepath.Join(w.dir, w.who)
	fd, err := w.makes(name, unix.O_RDWR)
	if err != nil {
		failed = err
	}
	lock, err := w.makes(name+"-lock", unix.O_RDWR)
	if err != nil {
		failed = err
	}
	held := false
	calls := map[string]func() error{
		"stat": func() error {
			var st unix.Statx_t
			return unix.Statx(unix.AT_FDCWD, name, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
		},
		"write": func() error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err },
		"lock": func() error {
			held = !held
			return lockCall("flock", lock, held)
		},
	}
	for what, call := range calls {
		go func() {
			for {
				began := monotonic()
				err := retry(call)
				ended := monotonic()
				mu.Lock()
				// A write of one thread while another one unlocks: see "Whether another host has
				// done it" in takeover.md. The test looks whether it may be.
				if what == "write" && w.doubts(err, what, name) {
					err = nil
				}
				if err != nil {
					failed = fmt.Errorf("%s: %w", what, err)
				} else if ended-began > int64(3*time.Millisecond) {
					fmt.Fprintf(w.log, "P %s %d %d\n", what, began, ended)
				}
				mu.Unlock()
				w.state.steps.Add(1)
				<-time.After(w.rest / 12)
			}
		}()
	}
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		return failed
	}
}

// killing is that the daemon of a mount was killed.
type killing struct {
	host int
	at   int64
}

// probed is a call of a prober.
type probed struct {
	what       string
	began, end int64
}

func readProbed(t testing.TB, log string) (list []probed) {
	t.Helper()
	lines, err := readMarks(log, "P")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		var p probed
		if _, err := fmt.Sscanf(l, "%s %d %d", &p.what, &p.began, &p.end); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// longest is the longest of the calls, since begin, that were under way between begin and
// end.
func longest(calls []probed, what string, begin, end int64) (d time.Duration) {
	for _, p := range calls {
		if p.end > begin && p.began < end && (what == "" || p.what == what) {
			d = max(d, time.Duration(p.end-max(p.began, begin)))
		}
	}
	return d
}

// tellPauses tells how long calls took after kills: on the host whose daemon was killed
// from that on, and of others whose own daemon was not killed at about the same time.
func (x *outliving) tellPauses() {
	var own, others []time.Duration
	ownBy := map[string][]time.Duration{}
	calls := make([][]probed, len(x.c.mounts))
	for i := range x.c.mounts {
		calls[i] = readProbed(x.t, filepath.Join(x.local, fmt.Sprintf("log-%d-probe", i)))
	}
	for _, k := range x.kills {
		soon := k.at + int64(100*time.Millisecond)
		own = append(own, longest(calls[k.host], "", k.at, soon))
		for _, what := range []string{"stat", "write", "lock"} {
			ownBy[what] = append(ownBy[what], longest(calls[k.host], what, k.at, soon))
		}
		for j := range x.c.mounts {
			from, to := k.at, k.at+int64(500*time.Millisecond)
			disturbed := slices.ContainsFunc(x.kills, func(o killing) bool {
				return o.host == j && o.at > from-int64(1500*time.Millisecond) && o.at < to
			})
			if j != k.host && !disturbed {
				others = append(others, longest(calls[j], "lock", from, to))
			}
		}
	}
	x.t.Logf("no call was answered, on the host itself: %s", quantiles(own))
	for _, what := range []string{"stat", "write", "lock"} {
		x.t.Logf("no %s was answered, on the host itself: %s", what, quantiles(ownBy[what]))
	}
	x.t.Logf("no lock that nobody else wanted was answered, on other hosts: %s", quantiles(others))
	x.tellTimes()
}

// reached is how far a daemon that takes over had come after how many ms, in its log.
var reached = regexp.MustCompile(`(\w+)_ms=(\d+)`)

// tellTimes tells how far daemons had come after what time, since the ones before them were
// found dead.
func (x *outliving) tellTimes() {
	var order []string
	times := map[string][]time.Duration{}
	for _, m := range x.c.mounts {
		for line := range strings.Lines(m.log()) {
			if !strings.Contains(line, "taken over: ") {
				continue
			}
			for _, f := range reached.FindAllStringSubmatch(line, -1) {
				ms, err := strconv.Atoi(f[2])
				if err != nil {
					x.t.Fatal(err)
				}
				if times[f[1]] == nil {
					order = append(order, f[1])
				}
				times[f[1]] = append(times[f[1]], time.Duration(ms)*time.Millisecond)
			}
		}
	}
	for _, what := range order {
		x.t.Logf("%s after: %s", what, quantiles(times[what]))
	}
}

func quantiles(list []time.Duration) string {
	if len(list) == 0 {
		return "not measured"
	}
	slices.Sort(list)
	at := func(q float64) time.Duration { return list[int(q*float64(len(list)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("median %v, 99th percentile %v, at most %v, of %d", at(0.5), at(0.99), at(1), len(list))
}

// unknownOutcomes are the changes of which the log of a mount says that it cannot be known
// who has made them, by the first part of their path.
func (m *testMount) unknownOutcomes() map[string]int {
	found := map[string]int{}
	for line := range strings.Lines(m.log()) {
		if _, rest, ok := strings.Cut(line, unknownOutcome); ok {
			_, path, _ := strings.Cut(rest, " path=")
			kind, _, _ := strings.Cut(strings.Trim(path, `"`), "/")
			found[kind]++
		}
	}
	return found
}

const unknownOutcome = "whether it or another host did cannot be known"
