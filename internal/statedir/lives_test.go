package statedir

import (
	"os"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// What is no proof of a death any more is none, also where nothing can be written:
// else a daemon that is started here would have the others drop a clone that lives.
func TestAForgottenLifeProvesNothing(t *testing.T) {
	t.Parallel()
	s := &Dir{Path: t.TempDir()}
	for _, inc := range []member.Inc{1, 2, 3} {
		if err := s.AddLife(inc); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DropLife(2); err != nil || !slices.Equal(s.Lives(), []member.Inc{1, 3}) {
		t.Errorf("without 2: %v, %v", s.Lives(), err)
	}
	if err := os.Mkdir(s.File(LivesFile+".new"), 0o700); err != nil { // no room
		t.Fatal(err)
	}
	if err := s.DropLife(3); err != nil || !slices.Equal(s.Lives(), []member.Inc{1}) {
		t.Errorf("without 3, and without room: %v, %v", s.Lives(), err)
	}
	// What fits into the file is proof of the next death: the others need not wait.
	if err := s.AddLife(4); err != nil || !slices.Equal(s.Lives(), []member.Inc{1, 4}) {
		t.Errorf("with 4, and without room: %v, %v", s.Lives(), err)
	}
	if err := os.Remove(s.File(LivesFile)); err != nil {
		t.Fatal(err)
	}
	if err := s.AddLife(5); err == nil {
		t.Errorf("without a file, and without room: %v", s.Lives())
	}
	if err := s.DropLife(3); err != nil {
		t.Errorf("once more: %v", err)
	}
}
