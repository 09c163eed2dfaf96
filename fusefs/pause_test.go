package fusefs

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Who asks for a pause before requests are read waits for that, and not for good.
func TestPauseBeforeRequestsAreRead(t *testing.T) {
	f := handlersOnly(t)
	f.conn.serving, f.conn.dead = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the upgrade takes too long")
	cancel(why)
	if err := pauseMount(ctx, f, mountpoint{}); !errors.Is(err, why) || !strings.Contains(err.Error(), "not served yet") {
		t.Errorf("until the end: %v", err)
	}
	close(f.conn.dead)
	if err := pauseMount(t.Context(), f, mountpoint{}); !errors.Is(err, errMountEnded) {
		t.Errorf("of a mount that is gone: %v", err)
	}
	if f.pause.on.Load() {
		t.Error("it is paused")
	}
}
