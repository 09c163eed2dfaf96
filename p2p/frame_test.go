package p2p

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/dmxfs/dmxfs/locks"
)

// Fuzz tests: what is read never panics, takes no more memory than its limits,
// and is written again as it was.

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, 1, []byte("frame")))
	f.Add(appendFrame(appendFrame(nil, 1, nil), 1<<63, bytes.Repeat([]byte{1}, 300)))
	f.Add([]byte("\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), 16)
		var again []byte
		for {
			seq, payload, err := readFrame(br)
			if err != nil {
				if rest := b[len(again):]; err == io.EOF && len(rest) > 0 {
					t.Errorf("the end of the stream in the middle of %x is not told from one between frames", rest)
				}
				return
			}
			again = appendFrame(again, seq, payload)
			if !bytes.HasPrefix(b, again) {
				t.Fatalf("read %x, written again as %x", b, again)
			}
		}
	})
}

func FuzzMemberMessage(f *testing.F) {
	f.Add(append(memberHead{Len: 3, Sent: 1, Echo: 2, Held: 3}.append(nil), "abc"...))
	f.Add(memberHead{Len: MaxMember + 1}.append(nil))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), 32)
		var again []byte
		for {
			h, msg, err := readMember(br)
			if err != nil {
				if rest := b[len(again):]; err == io.EOF && len(rest) > 0 {
					t.Errorf("the end of the stream in the middle of %x is not told from one between messages", rest)
				}
				return
			}
			if int(h.Len) != len(msg) {
				t.Errorf("a message of %d bytes is announced as %d", len(msg), h.Len)
			}
			again = append(h.append(again), msg...)
			if !bytes.HasPrefix(b, again) {
				t.Fatalf("read %x, written again as %x", b, again)
			}
		}
	})
}

func FuzzHandshake(f *testing.F) {
	f.Add(hello{1, 2, 3}.append(appendPreamble(nil, kindLock)))
	f.Add(verdict{statusNotMember, 7, "why"}.append(appendPreamble(nil, kindLock)))
	f.Add([]byte("dmxfsL\x02"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if err := readPreamble(r, kindLock); err == nil {
			head := b[:preambleLen]
			if h, err := readHello(r); err == nil {
				if again := h.append(bytes.Clone(head)); !bytes.HasPrefix(b, again) {
					t.Errorf("read %x, written again as %x", b, again)
				}
			}
			r = bytes.NewReader(b[preambleLen:])
			if v, err := readVerdict(r); err == nil {
				if again := v.append(bytes.Clone(head)); !bytes.HasPrefix(b, again) {
					t.Errorf("read %x, written again as %x", b, again)
				}
				if err := v.err(); (err == nil) != (v.Status == statusOK) || err != nil && strings.ContainsAny(err.Error(), "\n\x00") {
					t.Errorf("verdict %v is the error %q", v, err)
				}
			}
		} else if len(b) >= preambleLen && !errors.Is(err, ErrProtocol) || len(b) < preambleLen && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("preamble %x: %v", b, err)
		}
	})
}

func FuzzNodeID(f *testing.F) {
	id, err := NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(NodeID(id.ID(), 1)))
	f.Add(string(NodeID(id.ID(), ^uint64(0))))
	f.Add("12D3KooW.1")
	f.Add(".")
	f.Fuzz(func(t *testing.T, s string) {
		p, inc, err := SplitNodeID(locks.NodeID(s))
		if err == nil && NodeID(p, inc) != locks.NodeID(s) {
			t.Errorf("%q is split into %s and %x, which is %q", s, p, inc, NodeID(p, inc))
		}
	})
}

func FuzzRecord(f *testing.F) {
	id, err := NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	b, err := id.seal(DefaultListen())
	if err != nil {
		f.Fatal(err)
	}
	_, _, wantSeq, err := openRecord(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Fuzz(func(t *testing.T, got []byte) {
		p, addrs, seq, err := openRecord(got)
		if err != nil {
			if !errors.Is(err, ErrBadRecord) {
				t.Errorf("error %v is not ErrBadRecord", err)
			}
			return
		}
		// Nobody but the fuzzer's key can have signed: then it is the record
		// that was made above, whatever is around it.
		if p == id.ID() && (seq != wantSeq || !slices.EqualFunc(addrs, DefaultListen(), ma.Multiaddr.Equal)) {
			t.Errorf("a forged record was accepted: %v, %d", addrs, seq)
		}
	})
}

func FuzzSecret(f *testing.F) {
	f.Add(NewSecret())
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSecret(b)
		if err != nil {
			return
		}
		n := len(bytes.TrimSpace(b))
		if n < minSecret || n > maxSecret || s.IsZero() {
			t.Errorf("%d bytes were accepted: %s", n, s)
		}
		if s2, err := ParseSecret(append([]byte("\n "), append(bytes.Clone(b), " \n"...)...)); err != nil || s2 != s {
			t.Errorf("white space makes another secret: %v", err)
		}
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	v := verdict{statusFailed, 1, strings.Repeat("x", 5*maxReason)}
	got, err := readVerdict(bytes.NewReader(v.append(nil)))
	if err != nil || len(got.Reason) != maxReason || got.Status != v.Status || got.Value != v.Value {
		t.Errorf("%+v, %v", got, err)
	}
	for s := range statusLimit {
		if strings.Contains(s.String(), "(") {
			t.Errorf("status %d has no name", byte(s))
		}
	}
}

// The largest frames, and empty ones, between others.
func TestFramesOfAllSizes(t *testing.T) {
	t.Run("lanes", func(t *testing.T) { framesOfAllSizes(t, startNode(t)) })
	t.Run("streams", func(t *testing.T) { framesOfAllSizes(t, startNode(t, withoutLanes)) })
}

func framesOfAllSizes(t *testing.T, b *node) {
	a := startNode(t)
	connect(t, a, b)
	setView(t, 1, a, b)
	sizes := []int{0, 1, 100, writeLimit - frameHead, writeLimit, writeLimit + 1, 0, streamWindow, MaxFrame, 5, MaxFrame, MaxFrame, 0}
	for _, n := range sizes {
		if err := a.Send(1, b.name, []byte(strings.Repeat("x", n))); err != nil {
			t.Fatal(err)
		}
	}
	b.wait(t, "all", func() bool { return len(b.frames[a.name]) == len(sizes) })
	for i, f := range b.framesOf(a.name) {
		if len(f) != len("1:")+sizes[i] {
			t.Errorf("frame %d has %d bytes, want %d", i, len(f)-len("1:"), sizes[i])
		}
	}
}
