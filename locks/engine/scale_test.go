package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	scaleNodes = flag.Int("scale.nodes", 8, "how many nodes TestManyNodesUseTheSameFiles has")
	scaleFiles = flag.Int("scale.files", 500, "how many files they use")
	scaleLocks = flag.Int("scale.locks", 50, "how many locks each of them takes")
)

// Many nodes use the same files, some of them much more than others: one lock of five is for
// writing where the algorithm has others. Printed is what a lock takes, of the network, of the
// processors of all nodes, and of time, where a frame takes a millisecond. What they know of files
// is forgotten when nobody uses them any more.
func TestManyNodesUseTheSameFiles(t *testing.T) {
	for _, algorithm := range []string{"rw", "maekawa", "rcv", "ring"} {
		t.Run(algorithm, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { useTheSameFiles(t, algorithm) })
		})
	}
}

func useTheSameFiles(t *testing.T, algorithm string) {
	c := newTuned(t, *scaleNodes, func(o *Options) { o.Rule = func(string) string { return algorithm } })
	began := cpu()
	waits := make(chan time.Duration, *scaleNodes**scaleLocks)
	done := make(chan struct{})
	for i := range *scaleNodes {
		go func() {
			defer func() { done <- struct{}{} }()
			c.useFiles(i, allAlgorithms[algorithm].Shared, waits)
		}()
	}
	for range *scaleNodes {
		<-done
	}
	close(waits)
	used := cpu() - began
	var all []time.Duration
	for w := range waits {
		all = append(all, w)
	}
	if len(all) != *scaleNodes**scaleLocks {
		t.Fatalf("%d locks were granted", len(all))
	}
	slices.Sort(all)
	entries := c.entries()
	c.mu.Lock()
	sent := c.sent
	c.mu.Unlock()
	t.Logf("%d nodes, %d locks: each takes %.1f frames, %v of a processor, and waits %v (99%% %v); %d entries",
		*scaleNodes, len(all), float64(sent)/float64(len(all)), used/time.Duration(len(all)), all[len(all)/2], all[len(all)*99/100], entries)
	time.Sleep(time.Minute)
	synctest.Wait()
	if left := c.entries(); left > 0 {
		t.Errorf("%d entries are left of %d", left, entries)
	}
}

// useFiles has node i take its locks, and tells how long each waited.
func (c *net) useFiles(i int, shared bool, waits chan<- time.Duration) {
	n := c.nodes[nodeID(i)]
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	file := rand.NewZipf(rng, 1.1, 10, uint64(*scaleFiles-1))
	for range *scaleLocks {
		r := req(locks.Flock, i+1, locks.Write, locks.Whole)
		if shared && rng.IntN(5) > 0 {
			r.Mode = locks.Read
		}
		r.Path = fmt.Sprintf("f%d", file.Uint64())
		r.Key.File = r.Path
		asked := time.Now()
		if _, err := n.Lock(nil, r); err != nil {
			c.t.Error(err)
			return
		}
		waits <- time.Since(asked)
		time.Sleep(time.Millisecond)
		n.Unlock(r.Key, r.Owner, r.Range)
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// entries is how many the nodes have.
func (c *net) entries() (all int) {
	for _, n := range c.nodes {
		n.Engine.mu.Lock()
		all += len(n.entries.all)
		n.Engine.mu.Unlock()
	}
	return all
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxIdleBytes is how much a file may take that nobody has locked any more, in the engine and in
// the machine, on the average of all nodes: what one of them may write without asking all others
// have to know, however many they are.
const maxIdleBytes = 1200

func TestIdleEntryIsSmall(t *testing.T) {
	if long.Race {
		t.Skip("with -race all is larger")
	}
	const nodes, files = 40, 200
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, nodes)
		use := func(file int) {
			r := req(locks.Flock, 1, locks.Write, locks.Whole)
			r.Path = fmt.Sprintf("f%d", file)
			r.Key.File = r.Path
			if _, err := c.nodes["n0"].Lock(nil, r); err != nil {
				t.Fatal(err)
			}
			c.nodes["n0"].Unlock(r.Key, r.Owner, r.Range)
		}
		use(0) // so there are queues for what is sent
		before := heap()
		for i := range files {
			use(1 + i)
		}
		each := (heap() - before) / int64(nodes*files)
		if t.Logf("a file that nobody has locked takes %d B", each); each > maxIdleBytes {
			t.Errorf("a file that nobody has locked takes %d B, want %d at most", each, maxIdleBytes)
		}
		if n := c.entries(); n != nodes*(files+1) {
			t.Errorf("%d entries, want %d", n, nodes*(files+1))
		}
	})
}
