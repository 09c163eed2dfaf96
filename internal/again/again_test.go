package again

import (
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// What the client of a storage says of a moment is tried again, for a while.
func TestErrorsOfAMomentAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{unix.EINTR, unix.EBADFD, unix.EBADFD, unix.EINTR, nil}
		calls := 0
		err := Call(func() error { calls++; return errs[calls-1] })
		if err != nil || calls != len(errs) {
			t.Errorf("after %d calls: %v", calls, err)
		}
		if err := Call(func() error { return unix.EPERM }); err != unix.EPERM {
			t.Errorf("another error: %v", err)
		}
		calls = 0
		if err := Call(func() error { calls++; return unix.EBADFD }); err != unix.EBADFD || calls != badTries+1 {
			t.Errorf("one that stays, after %d calls: %v", calls, err)
		}
	})
}
