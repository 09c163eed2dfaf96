package exitcode

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	plain := errors.New("plain")
	for _, x := range []struct {
		err   error
		code  int
		given bool
	}{
		{nil, OK, false},
		{With(Busy, nil), OK, false},
		{plain, Failure, false},
		{With(Busy, plain), Busy, true},
		{With(Failure, plain), Failure, true},
		{fmt.Errorf("wrapped: %w", With(Busy, plain)), Busy, true},
		{With(Sick, fmt.Errorf("wrapped: %w", With(Busy, plain))), Sick, true},
		{errors.Join(plain, With(Busy, plain)), Busy, true},
	} {
		if _, given := Given(x.err); Of(x.err) != x.code || given != x.given {
			t.Errorf("%v: %d, given %v; want %d, %v", x.err, Of(x.err), given, x.code, x.given)
		}
	}
	if err := With(Busy, plain); err.Error() != "plain" || !errors.Is(err, plain) {
		t.Errorf("%v", err)
	}
}

// The numbers are part of the interface: scripts and units compare with them.
func TestNumbersStay(t *testing.T) {
	if got := [...]int{OK, Failure, Usage, NoMount, Refused, Busy, Sick}; got != [...]int{0, 1, 2, 3, 4, 5, 6} {
		t.Errorf("%v", got)
	}
}
