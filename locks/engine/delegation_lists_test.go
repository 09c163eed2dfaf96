package engine

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// rest is how long others have an engine where it can be let go of: seldom for
// long.
func (f *manyFiles) rest(rnd *rand.Rand) func() time.Duration {
	var mu sync.Mutex
	often := 1 + rnd.IntN(4)
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(often) > 0 {
			return 0
		}
		f.rests.Add(1)
		return time.Duration(rnd.IntN(200)*rnd.IntN(1+rnd.IntN(20))) * time.Microsecond
	}
}

// The lists that are sent with delegations are needed.
func TestDelegationsNeedTheirLists(t *testing.T) {
	without := func(kind byte) func([]byte) []byte {
		return func(b []byte) []byte {
			if b[0] != kind {
				return b
			}
			f, err := decodeFrame(b, nil, 3)
			if err != nil {
				t.Errorf("%x: %v", b, err)
			}
			return keysFrame(kind, f.more, f.token, nil)
		}
	}
	for _, tt := range []struct {
		name  string
		twist func([]byte) []byte
	}{
		{"what a delegator excepts", without(frameDelegate)},
		{"what a delegate keeps", without(frameReturn)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 60; seed++ {
				if f := randomFiles(t, seed, filesKind{}, tt.twist); f.err != nil {
					t.Logf("seed %d: %v", seed, f.err)
					return
				}
			}
			t.Error("nothing goes wrong without it")
		})
	}
}
