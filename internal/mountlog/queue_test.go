package mountlog

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Nobody takes what is logged: who logs goes on, what there is no room for is
// counted, and the rest comes in its order.
func TestALogThatStandsStill(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueue(w)
	q.Gap = func(n int) { fmt.Fprintf(q, "%d dropped\n", n) }
	line := strings.Repeat("x", 1000)
	const lines = 3 * maxQueue / 1000
	for i := range lines {
		if n, err := fmt.Fprintf(q, "%06d %s\n", i, line); err != nil || n != 1008 {
			t.Fatalf("%d %v", n, err)
		}
	}
	got := make(chan []string)
	go func() {
		b, _ := io.ReadAll(r)
		got <- strings.Split(strings.TrimSpace(string(b)), "\n")
	}()
	q.Flush(time.Minute)
	fmt.Fprintf(q, "more\n")
	q.Flush(time.Minute)
	w.Close()
	list := <-got
	kept, dropped := len(list)-2, 0
	if _, err := fmt.Sscanf(list[kept], "%d dropped", &dropped); err != nil || kept+dropped != lines || kept != maxQueue/1008 || list[kept+1] != "more" {
		t.Errorf("%d lines were kept of %d, then %q and %q: %v", kept, lines, list[kept], list[kept+1], err)
	}
	for i, l := range list[:kept] {
		if !strings.HasPrefix(l, fmt.Sprintf("%06d ", i)) {
			t.Fatalf("line %d is %.10s", i, l)
		}
	}
}

// A process that ends does not wait for ever until its log is taken.
func TestTheEndDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := NewQueue(w)
		fmt.Fprintln(q, "never taken")
		start := time.Now()
		q.Flush(LastLogs)
		if d := time.Since(start); d != LastLogs {
			t.Errorf("it took %v", d)
		}
		r.Close()
	})
}
