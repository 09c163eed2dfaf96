package journal

import (
	"bytes"
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// sample is the i-th record of programs that lock and unlock: three for each
// lock, over so many files. It looks like what the engine appends.
func sample(i, files int) Record {
	n := i / 3
	r := Record{
		Epoch:     17,
		Event:     Requested,
		Request:   uint64(n + 1),
		Key:       locks.Key{File: samplePaths[n%files%len(samplePaths)][:12], Class: locks.Flock},
		Path:      samplePaths[n%files%len(samplePaths)],
		Mode:      locks.Write,
		Range:     locks.Whole,
		Algorithm: "rw",
		PID:       31337,
		UID:       1000,
		Command:   "python3",
		Stamp:     locks.Stamp{SN: uint64(n), Site: "12D3KooWQCkBm1BYtkHpocxCwMgR8yjitEeHGx8spzcDLGt2gkBm.3"},
	}
	switch i % 3 {
	case 1:
		r.Event = Granted
		r.Wait = time.Duration(i*7919%100000) * time.Nanosecond
		r.Token = locks.TokenFloor(17) + locks.Token(n)
	case 2:
		r.Event = Released
		r.Final = true
	}
	return r
}

var samplePaths = func() []string {
	p := make([]string, 1000)
	for i := range p {
		p[i] = fmt.Sprintf("projects/alpha/build/cache/object-%05d.lock", i)
	}
	return p
}()

const sampleNode = "12D3KooWQCkBm1BYtkHpocxCwMgR8yjitEeHGx8spzcDLGt2gkBm.3"

// clone is what a crash leaves of m: a store with the same content.
func (m *memStore) clone() *memStore {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &memStore{}
	for _, p := range m.pairs {
		c.pairs = append(c.pairs, pair{bytes.Clone(p.key), bytes.Clone(p.value)})
	}
	return c
}
