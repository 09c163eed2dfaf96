package fusefs

import (
	"fmt"
	"maps"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// Whoever was told the size of a file by the answer to a SETATTR is known to the
// next server, and to the one after that: a lock that comes there waits for them as well.
func TestKilledServersHandOnWhoWasToldASize(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	p.want("ok", "put f hello")
	q.want("ok", "chmod f 0640")
	p.want("ok", "chmod f 0600")
	q.want("ok", "truncate f 3")
	for i := range 2 {
		m.kill()
		must(t, m.goOn())
		sizes := ask[map[uint32]int64](m.testMount, "Sizes", m.key("f", locks.Open))
		want := map[uint32]int64{uint32(p.cmd.Process.Pid): 5, uint32(q.cmd.Process.Pid): 3}
		if !maps.Equal(sizes, want) {
			t.Fatalf("server %d knows that threads were told %v, want %v", i+1, sizes, want)
		}
	}
}

// A note stays until that of the same thread, or as long as it counts; and there is no room if
// all count.
func TestSizeNotes(t *testing.T) {
	var notes [sizeNotes]sizeNote
	table := sizeTable{notes: &notes}
	counts := func(uint32, int64) bool { return false }
	put := func(node uint64, tid uint32, over func(uint32, int64) bool) bool {
		return table.put(node, &sizeAnswer{tid: tid, size: int64(node) * 10, at: 5}, over)
	}
	want := func(want map[uint32]uint64) {
		t.Helper()
		got := map[uint32]uint64{}
		for i := range notes {
			if x := &notes[i]; x.node.Load() != 0 {
				got[x.tid.Load()] = x.node.Load()
				if x.size.Load() != int64(x.node.Load())*10 || x.at.Load() != 5 {
					t.Errorf("the note of thread %d is of another one", x.tid.Load())
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the threads have answers about %v, want %v", got, want)
		}
	}
	put(1, 7, counts)
	put(2, 7+sizeNotes, counts)
	want(map[uint32]uint64{7: 1, 7 + sizeNotes: 2})
	put(3, 7, counts)
	put(4, 8, counts) // whose place the other one has
	want(map[uint32]uint64{7: 3, 7 + sizeNotes: 2, 8: 4})
	put(5, 7+2*sizeNotes, func(tid uint32, _ int64) bool { return tid == 7+sizeNotes })
	want(map[uint32]uint64{7: 3, 7 + 2*sizeNotes: 5, 8: 4})
	for i := range uint32(sizeNotes - 3) {
		if !put(6, 100*sizeNotes+i, counts) {
			t.Fatal(fmt.Sprint("no room for note ", i))
		}
	}
	if put(7, 1, counts) {
		t.Error("there is room for one more")
	}
	if !put(7, 7, counts) {
		t.Error("a thread has no room for its next answer")
	}
}
