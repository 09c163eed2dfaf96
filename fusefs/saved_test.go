package fusefs

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// filled is a state in which no field has its zero value but where that must be.
func filledState(handles int) *saved {
	key := locks.Key{File: "i77", Class: locks.Open}
	init := fuse.InHeader{Opcode: opInit, Length: uint32(headSize), Unique: 2}
	s := &saved{
		Start: -5, Asked: headerBytes(init), Answered: make([]byte, readHead), Mount: savedMount{"/mnt", 33, "77", true}, Dev: 5,
		LastHandle: uint64(handles) + 1, LastNode: uint64(handles) + 1, LastOwner: 300, LastTask: 7, Turns: 8, Arrivals: 9, ExplicitArrivals: 10,
		Arrived: true, Devices: []savedDevice{{9, 1, "sub", true}}, Nested: []string{"a", "b/c"}, LeaseHandle: 12,
		Nodes:       []savedNode{{ID: rootID, Key: fileKey{1, 2}, Primary: true, Kind: unix.S_IFDIR, FD: 6, Lookups: 1, Path: "."}},
		Processes:   []savedProcess{{PID: 100, Owner: 258, Name: "sh", Self: true, UpKnown: true, Up: 1, Depth: 3}},
		Threads:     []savedThread{{100, 7, 1, true, 4}, {101, 8, 1, false, 5}},
		Retries:     []savedRetry{{101, 2, 9, true}},
		CachedNames: []savedLongCached{{1, "x", 2, false, 3}}, CachedNodes: []savedLongCached{{0, "", 2, true, 3}}, CachedBy: []savedCachedBy{{1, 2}},
		Requests: []leftRequest{{Bytes: headerBytes(fuse.InHeader{Opcode: opOpen, Length: uint32(headSize), Unique: 4}), Interrupted: true, Key: key, Handle: 3}},
		Owed:     []owedUnlock{{key, 1, 2, locks.Whole, "why"}},
		Dirs:     []savedDir{{ID: uint64(handles) + 1, Node: rootID, FD: 9, Next: 5, Read: true, Lists: true, UID: 1, GID: 2, PID: 3}},
	}
	for i := range handles {
		n := uint64(i) + 2
		s.Nodes = append(s.Nodes, savedNode{
			ID: n, Key: fileKey{1, n + 100}, Primary: true, Kind: unix.S_IFREG, FD: 10 + 2*i, Cluster: -1, Spare: true, Lookups: 3,
			Names: []savedName{{rootID, fmt.Sprint("a name of a file ", i)}}, File: "i77", Replaced: true,
			Sole: savedSole{true, true, unix.Stat_t{Ino: 5, Size: 7}, 3}, Failures: 1, PageFailures: 2, Error: unix.EIO, Told: true, Owed: true,
			AppendEnd: 9, Appended: []savedPiece{{1, 2}}, Cached: true, AttrTold: true, LongCached: true, ToldAt: 77, Filled: 3, Empty: 2,
			Version: version{known: true, young: true, gen: 3, size: 5, mtime: unix.Timespec{Sec: 1, Nsec: 2}}, Sizes: toldSizes{true, true, 5, 6},
			Answers: []savedAnswer{{1, 2, 3, 4}}, Bounds: savedBounds{5, math.MaxInt64, 7}, Made: 11, Rereads: true, Rereading: savedRereading{8, 9, 10},
		})
		s.Handles = append(s.Handles, savedHandle{
			ID: uint64(i) + 1, Node: n, FD: 11 + 2*i, Flags: unix.O_RDWR, Process: 1, Write: true, Mixed: true, State: openShared, Asks: true, Again: true,
			Request: locks.Request{Key: key, Path: "x", Owner: 1 << 63, Handle: locks.HandleID(i + 1), Mode: locks.Write, Range: locks.Whole,
				Patience: 3, Program: locks.Program{PID: 1, TID: 2, Process: 3, Task: 4, UID: 5, Command: "sh"}},
			Yields: yields{1, 2, 3}, Tenure: 3, Token: 1 << 60, Touched: true, Knows: 1, Filled: unknownPages, Used: 4, Dropped: 5, AloneSince: 4,
		})
		s.Records = append(s.Records, savedRecord{n, locks.Posix, 1 << 62, uint64(i) + 1, 1, []locks.Range{{Start: 0, End: 10}, {Start: 20, End: 21}}, 3, 4, 5, 0})
	}
	return s
}

func headerBytes(h fuse.InHeader) []byte {
	in := fuse.InitIn{InHeader: h}
	return append([]byte(nil), rawBytes(&in)[:headSize]...)
}

func sameFD(fd int) int { return fd }

func TestSavedState(t *testing.T) {
	want := filledState(3)
	b, fds := want.encode()
	if len(fds) != 1+1+2+1+2*3 {
		t.Errorf("%d descriptors: %v", len(fds), fds)
	}
	got, err := decode(b, sameFD)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if _, err := decode(b, func(int) int { return -1 }); err == nil {
		t.Error("a missing descriptor is no error")
	}
	for i := range b {
		c := append([]byte(nil), b...)
		c[i] ^= 1
		if _, err := decode(c, sameFD); err == nil {
			t.Fatalf("a state with another byte %d is taken", i)
		}
		if _, err := decode(b[:i], sameFD); err == nil {
			t.Fatalf("a state of %d bytes is taken", i)
		}
	}
	b[len(stateMagic)]++
	if _, err := decode(b, sameFD); !errors.Is(err, ErrStateVersion) {
		t.Errorf("a state of another version: %v", err)
	}
}

// A state that contradicts itself is refused before anything is taken.
func TestSavedStateIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(*saved){
		"a node twice":            func(s *saved) { s.Nodes[1].ID = s.Nodes[2].ID },
		"a node of the future":    func(s *saved) { s.LastNode-- },
		"no root":                 func(s *saved) { s.Nodes = s.Nodes[1:] },
		"a root without anchor":   func(s *saved) { s.Nodes[0].FD = -1 },
		"a name in a file":        func(s *saved) { s.Nodes[1].Names[0].Dir = 3 },
		"a name twice":            func(s *saved) { s.Nodes[1].Names[0] = s.Nodes[2].Names[0] },
		"a name of the root":      func(s *saved) { s.Nodes[0].Names = []savedName{{rootID, "x"}} },
		"two nodes of a file":     func(s *saved) { s.Nodes[1].Key = s.Nodes[2].Key },
		"a handle of no node":     func(s *saved) { s.Handles[0].Node = 99 },
		"a handle twice":          func(s *saved) { s.Handles[0].ID = 2; s.Handles[0].Request.Handle = 2 },
		"a closed handle":         func(s *saved) { s.Handles[0].FD = -1 },
		"a handle of the future":  func(s *saved) { s.LastHandle = 1 },
		"another's open lock":     func(s *saved) { s.Handles[0].Request.Handle = 2 },
		"an unknown state":        func(s *saved) { s.Handles[0].State = openWaiting },
		"no such process":         func(s *saved) { s.Handles[0].Process = 2 },
		"a process of no parent":  func(s *saved) { s.Processes[0].Up = 2 },
		"an owner of others":      func(s *saved) { s.Processes[0].Owner = sharedOwner },
		"a thread without leader": func(s *saved) { s.Threads = s.Threads[1:] },
		"a thread twice":          func(s *saved) { s.Threads[1].TID = 100 },
		"a directory's file":      func(s *saved) { s.Dirs[0].Node = 2 },
		"half an entry":           func(s *saved) { s.Dirs[0].Rest = []byte{1, 2, 3} },
		"a lock of no handle":     func(s *saved) { s.Records[0].Handle = 2 },
		"a lock of nothing":       func(s *saved) { s.Records[0].Ranges = nil },
		"a lock twice":            func(s *saved) { s.Records = append(s.Records, s.Records[0]) },
		"a short request":         func(s *saved) { s.Requests[0].Bytes = s.Requests[0].Bytes[:8] },
		"no INIT":                 func(s *saved) { s.Asked = nil },
		"no connection":           func(s *saved) { s.Dev = -1 },
	} {
		s := filledState(3)
		spoil(s)
		b, _ := s.encode()
		if _, err := decode(b, sameFD); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

func FuzzDecodeState(f *testing.F) {
	b, _ := filledState(2).encode()
	f.Add(b[stateHead:])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, s := &codec{b: b, reading: true, take: sameFD}, new(saved)
		if s.code(c); c.err != nil || s.check() != nil {
			return
		}
		again, _ := s.encode()
		if _, err := decode(again, sameFD); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkState(b *testing.B) {
	s := filledState(50_000)
	state, _ := s.encode()
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			s.encode()
		}
		b.ReportMetric(float64(len(state)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := decode(state, sameFD); err != nil {
				b.Fatal(err)
			}
		}
	})
}
