package succession

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/journal"
)

// inMemory is a journal whose disk does not take it.
type inMemory struct{ why error }

func (j inMemory) OnDisk() error            { return j.why }
func (inMemory) Sync(context.Context) error { return nil }
func (inMemory) Append(journal.Record)      {}
func (inMemory) Settle()                    {}

// What is in memory only would be lost with the program: nothing is asked then.
func TestUpgradeWithoutTheDiskOfTheJournal(t *testing.T) {
	t.Parallel()
	u := New(Served{Journal: inMemory{unix.ENOSPC}})
	if _, _, err := u.Order(httptest.NewRequest("POST", "/upgrade", strings.NewReader("{}"))); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	if x := u.Status(); x.State != "" {
		t.Errorf("it has begun: %+v", x)
	}
}
