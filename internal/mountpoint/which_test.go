package mountpoint

import (
	"os"
	"testing"
	"testing/synctest"
)

// A link that leads into something that hangs does not hold up who asks.
func TestLinksThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		if got := resolved("/link/file", func(string) (string, error) { <-hangs; return "/", nil }); got != "/link/file" {
			t.Errorf("%s", got)
		}
		if got := resolved("/link/file", func(dir string) (string, error) { return "/mnt" + dir, nil }); got != "/mnt/link/file" {
			t.Errorf("%s", got)
		}
		if got := resolved("/link/file", func(string) (string, error) { return "", os.ErrNotExist }); got != "/link/file" {
			t.Errorf("%s", got)
		}
	})
}
