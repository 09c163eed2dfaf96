package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/p2p"
)

// Peers find a daemon that goes on after an upgrade before it is a member.
func TestAskedBeforeItIsAMember(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"state", "locks", "journal", "secret", "break"} {
		if _, err := new(daemon).onAsk(t.Context(), "", fmt.Appendf(nil, `{"what":%q}`, what)); err == nil {
			t.Errorf("%s: answered", what)
		}
	}
}

// Why a member did not answer is told in words for people.
func TestSilence(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"no answer within 2s":  fmt.Errorf("p2p: ask x: %w", context.DeadlineExceeded),
		"no connection to it":  fmt.Errorf("p2p: ask x: %w", p2p.ErrNotConnected),
		"something else fails": errors.New("something else fails"),
	} {
		if got := silence(err, 2*time.Second); got != want {
			t.Errorf("of %q is told %q, want %q", err, got, want)
		}
	}
}
