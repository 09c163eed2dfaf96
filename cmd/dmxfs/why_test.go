package main

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// That nobody waits is said only if all members have answered.
func TestWhatNobodyKnowsIsNotDenied(t *testing.T) {
	t.Parallel()
	silent := []waitgraph.Member{{ID: "A", State: "expelled"}, {ID: "B", State: "silent"}}
	for _, x := range []struct {
		target waitgraph.Target
		silent []waitgraph.Member
		want   string
		known  bool
	}{
		{waitgraph.Target{Path: "x"}, nil, "nobody waits for a lock of x", true},
		{waitgraph.Target{Path: "x"}, silent[:1], "nobody waits for a lock of x", true},
		{waitgraph.Target{Path: "x"}, silent, "a lock of x is not known", false},
		{waitgraph.Target{PID: 7}, silent[:1], "process 7 waits for no lock of /mnt", true},
		{waitgraph.Target{PID: 7}, silent, "that is known here", false},
	} {
		got := noWait(x.target, x.silent, "/mnt")
		if !strings.Contains(got, x.want) || strings.Contains(got, "known") == x.known {
			t.Errorf("of %+v with silent %v: %s", x.target, x.silent, got)
		}
	}
}
