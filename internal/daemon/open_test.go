package daemon

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/fusefs"
)

// An admin is told of a client of NFS that cannot be made to forget old data.
func TestStorageWarnsOfNFSWithALockManager(t *testing.T) {
	for _, x := range []struct {
		zaps, warns bool
	}{{true, false}, {false, true}} {
		s := fusefs.Storage{Type: "nfs", Known: true, ClientCache: true, NamesByTime: true, LocksZap: x.zaps}
		got := strings.Join(storageWarnings(s, false), "; ")
		if strings.Contains(got, "mount it with nolock") != x.warns {
			t.Errorf("zaps %v: %q", x.zaps, got)
		}
	}
}
