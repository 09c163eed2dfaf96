package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// BenchmarkHandoverBesideFind prints what a handover between two hosts takes
// beside a find(1) that walks through the mount of one of them, and through the
// storage, in turns: the means, their ratio and that of the medians.
//
// Beside both find looks at every file. On a machine with few processors find and
// the daemon that answers it take what there is of them.
func BenchmarkHandoverBesideFind(b *testing.B) {
	c, _ := speedCluster(b, 2)
	for i := range 100 {
		dir := filepath.Join(c.src, fmt.Sprint("found-", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	beside := func(dir, what string) float64 {
		if dir != "" {
			p := c.mounts[0].start("while :; do find " + dir + " -newermt 2100-01-01; done")
			defer func() {
				p.signal(syscall.SIGKILL)
				p.wait()
			}()
		}
		return handover(b, what, c.mounts[0].dir, c.mounts[1].dir)
	}
	mount, storage := c.mounts[0].dir, c.src
	var alone, onMount, onStorage, ratios, medians []float64
	for b.Loop() {
		alone = append(alone, beside("", "mean"))
		m, s := beside(mount, "mean"), beside(storage, "mean")
		onMount, onStorage, ratios = append(onMount, m), append(onStorage, s), append(ratios, m/s)
		medians = append(medians, beside(mount, "latency")/beside(storage, "latency"))
	}
	b.ReportMetric(median(alone), "µs-alone")
	b.ReportMetric(median(onMount), "µs-mount")
	b.ReportMetric(median(onStorage), "µs-storage")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(medians), "ratio-of-medians")
	b.ReportMetric(0, "ns/op")
}
