package fusefs

import (
	"bytes"
	"log/slog"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// What another program has agreed with the kernel is compared with what this one
// would say.
func TestGreetingIsCompared(t *testing.T) {
	init := fuse.InitIn{Major: 7, Minor: 45, MaxReadAhead: 1 << 17, Flags: ^uint32(0) &^ (1 << 31)}
	init.Opcode, init.Unique, init.Length = opInit, 2, uint32(unsafe.Sizeof(init))
	g := Greeting{Asked: bytes.Clone(rawBytes(&init))}
	f := &fileSystem{notServed: notServed{fuse.NewDefaultRawFileSystem()}, base: &base{log: slog.New(slog.DiscardHandler), pause: newPausing()}}
	c := newConnOf(f, f.mountOptions())
	out := make([]byte, smallSize)
	n, st := c.proto.HandleRequest([][]byte{g.Asked}, [][]byte{out})
	if !st.Ok() {
		t.Fatal(st)
	}
	g.Answered = out[:n]
	if err := g.Check(); err != nil {
		t.Error(err)
	}
	g.Answered = bytes.Clone(g.Answered)
	g.Answered[len(g.Answered)-1]++ // something that this program does not say
	if g.Check() == nil {
		t.Error("another answer passes")
	}
	for n := range len(g.Asked) {
		cut := Greeting{Asked: g.Asked[:n], Answered: g.Answered}
		if cut.Check() == nil {
			t.Fatalf("%d bytes pass", n)
		}
	}
}
