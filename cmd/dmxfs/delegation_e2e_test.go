package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
)

// written is what a program has written to files, each of them in two halves.
type written struct {
	mu       sync.Mutex
	names    []string
	versions map[string]int // of the last close
}

func half(name string, version int) string {
	return fmt.Sprintf("%s %d %s\n", name, version, strings.Repeat("x", version%3*1000))
}

// write writes the next version of a file, and a new file if name is empty.
func (w *written) write(m *testMount, name string) error {
	flags := os.O_WRONLY | os.O_TRUNC
	w.mu.Lock()
	if name == "" {
		name = fmt.Sprintf("f%d", len(w.names))
		flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	}
	version := w.versions[name] + 1
	w.mu.Unlock()
	f, err := os.OpenFile(m.path(name), flags, 0o600)
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := f.WriteString(half(name, version)); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if version == 1 {
		w.names = append(w.names, name)
	}
	w.versions[name] = version
	return nil
}

// pick is one of the last files, and the version that it has at least.
func (w *written) pick(last int) (name string, version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name = w.names[len(w.names)-1-rand.IntN(min(last, len(w.names)))]
	return name, w.versions[name]
}

// read checks that what another host reads is all of a version, and that it is
// not old.
func (w *written) read(m *testMount) error {
	name, least := w.pick(1000)
	b, err := os.ReadFile(m.path(name))
	if err != nil {
		return err
	}
	var version int
	if _, err := fmt.Sscanf(string(b), name+" %d ", &version); err != nil || version < least || string(b) != half(name, version)+half(name, version) {
		return fmt.Errorf("%s reads %.40q…, %d bytes, of %s, of which version %d was closed", m.dir, b, len(b), name, least)
	}
	return nil
}

// A host makes many files: the others delegate to it what they do not use. Now
// and then they use some, and what they read is whole and new; after that the
// first host gets the delegation again.
func TestManyFilesOfOneHost(t *testing.T) {
	t.Parallel()
	needMounts(t)
	var side parts
	defer side.Wait()
	side.run(t, "one client", func(t *testing.T) {
		manyFiles(t, newCluster(t, 3))
	})
	for _, kind := range kindsOfClients() {
		side.run(t, kind.name, func(t *testing.T) {
			manyFiles(t, newClientCluster(t, kind, 2))
		})
	}
}

func manyFiles(t *testing.T, c *testCluster) {
	c.awaitMembers(len(c.mounts))
	w := &written{versions: map[string]int{}}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- untilClosed(stop, func() error { return w.writeAny(c.mounts[0]) }) }()
	for range long.Or(1, 3) {
		awaitDelegate(t, c)
		if w.useElsewhere(t, c); t.Failed() {
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for _, m := range c.mounts {
		for range 50 {
			if err := w.read(m); err != nil {
				t.Error(err)
			}
		}
	}
}

// untilClosed does something again and again, until stop is closed or it fails.
func untilClosed(stop <-chan struct{}, do func() error) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// writeAny writes a new file, or one of the last ones. Nobody else writes.
func (w *written) writeAny(m *testMount) error {
	<-time.After(time.Millisecond) // the other tests have something to do, too
	name := ""
	if rand.IntN(3) == 0 && len(w.names) > 0 {
		name, _ = w.pick(1000)
	}
	return w.write(m, name)
}

// awaitDelegate waits until the others delegate to the first host.
func awaitDelegate(t *testing.T, c *testCluster) {
	t.Helper()
	a := c.mounts[0]
	// It has to make 16 new files within a second, which it may not come to while other tests
	// have the processors.
	awaitFor(t, 3*time.Minute, "the first host is delegate", func() bool {
		s, err := a.status()
		return err == nil && s.Delegate
	})
	first, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.mounts[1].status(); err != nil || s.DelegatesTo != first.Self {
		t.Errorf("the second host says that it delegates to %q, %v; the first one is %s", s.DelegatesTo, err, first.Self)
	}
}

// useElsewhere has the other hosts read, until the first one has given back what
// was delegated to it. They begin at once, and go on until then: it is given
// again half a second after they have ended.
func (w *written) useElsewhere(t *testing.T, c *testCluster) {
	var readers sync.WaitGroup
	enough := make(chan struct{})
	for _, m := range c.mounts[1:] {
		readers.Go(func() {
			if err := untilClosed(enough, func() error { return w.read(m) }); err != nil {
				t.Error(err)
			}
		})
	}
	returned := false
	for end := time.Now().Add(time.Minute); !returned && !t.Failed() && time.Now().Before(end); {
		s, err := c.mounts[0].status()
		returned = err == nil && !s.Delegate
	}
	<-time.After(200 * time.Millisecond) // more of the same
	close(enough)
	readers.Wait()
	if !returned {
		t.Error("the first host keeps what the others use")
	}
}
