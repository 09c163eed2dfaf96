package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

var manyHosts = flag.Int("hosts", 5, "how many hosts BenchmarkManyHosts has")

// BenchmarkManyHosts prints what comes and goes cost those who stay, where there are many hosts:
// for how long programs on two of them wait for a lock at worst while a host joins, leaves, and
// is killed. It does everything once, whatever b.N is. See also TestViewsOfManyNodes in
// systemtest, where each node has processors of its own.
func BenchmarkManyHosts(b *testing.B) {
	n := *manyHosts
	began := time.Now()
	w := newWatched(b, n)
	b.Logf("%d hosts have come together in %v", n, time.Since(began).Round(time.Millisecond))
	stay := w.mounts
	step := func(what string, members int, f func()) {
		before := ticksOf(b, stay)
		w.step(what, func() {
			f()
			w.awaitMembers(members)
		})
		b.Logf("%-34s %8.1f ms of a processor for each daemon that stays", "", float64(ticksOf(b, stay)-before)*10/float64(n))
	}
	more := w.add()
	step("another host joins", n+1, more.mount)
	step("it leaves", n, func() { w.run("unmount", more.dir) })
	step("it joins again", n+1, more.mount)
	step("it is killed", n, func() {
		more.kill()
		w.mounts = stay
	})
	s, err := w.mounts[2].status()
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("the daemon of host 3 has %.1f MB, and %d goroutines", float64(s.MemoryBytes)/1e6, s.Goroutines)
}

// ticksOf is how long the daemons of mounts have run, in hundredths of a second.
func ticksOf(b *testing.B, mounts []*testMount) (sum int) {
	for _, m := range mounts {
		stat := read(b, fmt.Sprintf("/proc/%d/stat", m.daemon()))
		f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		for _, ticks := range f[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				b.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
