package nodestate

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// What a node remembers of its membership is of its cluster, and no other.
func TestMembershipIsOfOneCluster(t *testing.T) {
	t.Parallel()
	log := new(strings.Builder)
	dir := &statedir.Dir{Path: t.TempDir()}
	of := func(cluster string) *Membership {
		return &Membership{State: dir, Cluster: cluster, Log: slog.New(slog.NewTextHandler(log, nil))}
	}
	if s := of("a").Load(); s.Epoch != 0 || log.Len() > 0 {
		t.Errorf("of a new state directory: %+v, %s", s, log)
	}
	if err := of("a").Save(member.Saved{Epoch: 7}); err != nil {
		t.Fatal(err)
	}
	if s := of("a").Load(); s.Epoch != 7 {
		t.Errorf("of its own cluster: %+v", s)
	}
	if s := of("b").Load(); s.Epoch != 0 {
		t.Errorf("of another cluster: %+v", s)
	}
	if err := os.WriteFile(dir.File("member.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := of("a").Load(); s.Epoch != 0 || !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("of a damaged file: %+v, %s", s, log)
	}
}
