package fusefs

import (
	"fmt"
	"testing"
	"time"
)

// What is told of a request are the bytes that it moved, and none of one that failed.
func TestObservedBytes(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		op              uint32
		answered, asked int
		want            string
	}{
		{opRead, readHead + 100, 80, "15 1s 100 0"},
		{opRead, readHead, 80, "15 1s 0 0"}, // at the end of the file, or an error
		{opRead, 0, 80, "15 1s 0 0"},
		{opWrite, readHead + 8, writeHead + 50, "16 1s 0 50"},
		{opWrite, readHead, writeHead + 50, "16 1s 0 0"}, // an error
		{opGetAttr, readHead + 100, 80, "3 1s 0 0"},
	} {
		got := ""
		c := &conn{observe: func(op uint32, took time.Duration, read, written int) { got = fmt.Sprint(op, took, read, written) }}
		c.tell(x.op, time.Second, x.answered, x.asked)
		if got != x.want {
			t.Errorf("request %d of %d bytes, answer of %d: %q, want %q", x.op, x.asked, x.answered, got, x.want)
		}
	}
}

func TestRequestName(t *testing.T) {
	t.Parallel()
	for op, want := range map[uint32]string{opRead: "READ", opSetLkw: "SETLKW", 7: "", 4096: ""} {
		if got := RequestName(op); got != want {
			t.Errorf("request %d is %q, want %q", op, got, want)
		}
	}
}
