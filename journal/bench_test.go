package journal

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cpu is the user and system time of this process so far.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchOptions() Options {
	return Options{Cluster: "bench", Node: sampleNode}
}

// BenchmarkAppend appends as fast as the callers can, which is more than the
// disk takes in the end: then it shows what backpressure costs.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			j, err := Open(b.TempDir(), benchOptions())
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			recs := make([]Record, 3000)
			for i := range recs {
				recs[i] = sample(i, 100)
				recs[i].Node = sampleNode
			}
			var next atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						j.Append(recs[i%3000])
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			if err := j.Sync(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(j.Stats().Dropped)/float64(b.N), "dropped/op")
		})
	}
}

// BenchmarkCachedLock is the pace of one program that locks and unlocks through
// FUSE: three records each 24 µs. cpu-ns/lock is what the journal takes for
// them in all: append, encoding, Badger, the kernel.
func BenchmarkCachedLock(b *testing.B) {
	j, err := Open(b.TempDir(), benchOptions())
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	const burst = 42 // locks each millisecond
	idle := cpuOfPacing(b, burst)
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	b.ResetTimer()
	before := cpu(b)
	for i := 0; i < b.N; i++ {
		for k := range 3 {
			j.Append(sample(3*i+k, 1))
		}
		if i%burst == burst-1 {
			<-pace.C
		}
	}
	if err := j.Sync(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N)-idle, "cpu-ns/lock")
	b.ReportMetric(float64(j.Stats().Bytes)/float64(j.Stats().Records), "B/record")
}

// cpuOfPacing is what a lock costs without a journal, in ns.
func cpuOfPacing(b *testing.B, burst int) float64 {
	const n = 42 * 100
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	before := cpu(b)
	for i := range n {
		for k := range 3 {
			r := sample(3*i+k, 1)
			sink = r
		}
		if i%burst == burst-1 {
			<-pace.C
		}
	}
	return float64(cpu(b)-before) / n
}

var sink Record

// fill writes n records as they come from several programs.
func fill(b *testing.B, j *Journal, n int) {
	for i := range n {
		j.Append(sample(i, 100))
		if i%10000 == 0 {
			if err := j.Sync(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := j.Sync(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		dir := b.TempDir()
		j, err := Open(dir, benchOptions())
		if err != nil {
			b.Fatal(err)
		}
		fill(b, j, n)
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			for b.Loop() {
				j, err := Open(dir, benchOptions())
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(rss(b))/1e6, "MB-rss")
		})
		b.Run(fmt.Sprintf("query/records=%d", n), func(b *testing.B) {
			j, err := OpenReadOnly(dir, benchOptions())
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			for b.Loop() {
				got := 0
				if err := j.Query(context.Background(), Filter{PID: 31337}, func(Record) error { got++; return nil }); err != nil {
					b.Fatal(err)
				}
				if got < n {
					b.Fatalf("%d records of %d", got, n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
		b.Run(fmt.Sprintf("last10/records=%d", n), func(b *testing.B) {
			j, err := OpenReadOnly(dir, benchOptions())
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			for b.Loop() {
				if err := j.Query(context.Background(), Filter{Last: 10}, func(Record) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func rss(b *testing.B) (bytes int) {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	defer f.Close()
	var size, pages int
	if _, err := fmt.Fscan(f, &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func BenchmarkJSON(b *testing.B) {
	r := sample(1, 1)
	r.Seq, r.Time, r.Node = 123456, time.Unix(1.8e9, 123456789), sampleNode
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.MarshalJSON(); err != nil {
			b.Fatal(err)
		}
	}
}
