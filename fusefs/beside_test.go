package fusefs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// BenchmarkRefreshBesideFind measures how long the grant of a lock from another
// host takes beside a program that walks through the mount, as find(1) does, and
// looks at every file; and how long that takes. The times are medians.
func BenchmarkRefreshBesideFind(b *testing.B) {
	needFuse(b)
	m := mount(b)
	for i := range 100 {
		dir := m.backing(fmt.Sprint("d", i))
		must(b, os.Mkdir(dir, 0o755))
		for j := range 100 {
			must(b, os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), nil, 0o644))
		}
	}
	must(b, os.WriteFile(m.backing("lock"), nil, 0o644))
	key := m.key("lock", locks.Flock)
	walk := func() {
		_ = filepath.WalkDir(m.dir, func(_ string, e fs.DirEntry, _ error) error {
			_, err := e.Info()
			return err
		})
	}
	refresh := func() time.Duration {
		began := time.Now()
		ask[None](m, "Refresh", key)
		return time.Since(began)
	}
	report := func(times []time.Duration, name string) {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), name)
	}
	var alone, walks, beside []time.Duration
	for range 5 {
		began := time.Now()
		walk()
		walks = append(walks, time.Since(began))
	}
	for range 200 {
		alone = append(alone, refresh())
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for !closed(stop) {
			walk()
		}
	}()
	handovers := time.NewTicker(5 * time.Millisecond)
	defer handovers.Stop()
	for b.Loop() {
		beside = append(beside, refresh())
		<-handovers.C
	}
	close(stop)
	<-ended
	report(alone, "alone-µs")
	report(beside, "beside-µs")
	report(walks, "walk-µs")
}

// While locks come from other hosts the kernel keeps few names.
func TestFewNamesAreKeptBesideHandovers(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.TTL = 5 * time.Second })
	writeFile(t, m.backing("lock"), "")
	for i := range 1000 {
		writeFile(t, m.backing(fmt.Sprint("n", i)), "")
	}
	key := m.key("lock", locks.Flock)
	for range 3 {
		began := time.Now()
		ask[None](m, "Refresh", key)
		before := ask[Stats](m, "Stats", None{}).EntryDrops
		for i := range 1000 {
			if _, err := os.Stat(m.path(fmt.Sprint("n", i))); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(began) > handoverTime {
			t.Skip("this machine is too slow")
		}
		ask[None](m, "Refresh", key)
		if n := ask[Stats](m, "Stats", None{}).EntryDrops - before; n > fewNames {
			t.Errorf("%d names were kept", n)
		}
	}
}
