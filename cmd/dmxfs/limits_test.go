package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// What the membership may say has to fit what the network carries: a view that
// did not would never reach those who do not see the storage.
func TestMembershipMessagesFit(t *testing.T) {
	if member.MaxMessage > p2p.MaxMember {
		t.Errorf("messages of the membership may have %d bytes, the channel carries %d", member.MaxMessage, p2p.MaxMember)
	}
}

// The times of the membership are those that were asked for: a host that died
// is waited for as long as --tenure says, not as long as the default.
func TestShorterTenure(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "-o", "no-restart,heartbeat=100ms,tenure=2500ms")
	a, b := c.mounts[0], c.mounts[1]
	a.helper("hold", "flock", "f")
	a.held("f", 1)
	wait := b.helper("take", "flock", "f")
	b.blocked("f", 1)
	a.signal(unix.SIGKILL)
	if out, code := wait.wait(); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	var why string
	for _, r := range b.journal("--event", "leave") {
		why = r.Reason
	}
	var silent int
	if _, err := fmt.Sscanf(why[max(strings.Index(why, "silent"), 0):], "silent for %d ms", &silent); err != nil || silent < 2500 {
		t.Errorf("it was dropped as %q", why)
	}
	if silent >= 5000 {
		t.Errorf("it was waited for for %d ms", silent)
	}
}
