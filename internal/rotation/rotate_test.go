package rotation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A change of the secret waits until locks are granted, not for longer than it may.
func TestRotateWaitsForTheView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		status := func() member.Status {
			in := time.Since(began) >= 3*time.Second
			return member.Status{State: member.StateMember, Live: in, Granting: in}
		}
		if err := awaitGranting(t.Context(), 2*time.Second, status); err == nil || !strings.Contains(err.Error(), "suspended, for 2s") {
			t.Errorf("after 2 of 3 seconds: %v", err)
		}
		if err := awaitGranting(t.Context(), 2*time.Second, status); err != nil || time.Since(began) >= 4*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if err := awaitGranting(ctx, time.Minute, status); !errors.Is(err, context.Canceled) {
			t.Errorf("who asked has gone: %v", err)
		}
	})
}
