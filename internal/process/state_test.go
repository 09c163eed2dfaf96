package process

import (
	"testing"
)

// A process may have any name.
func TestStateInStat(t *testing.T) {
	for stat, want := range map[string]byte{
		"12 (dmxfs) Z 1 12 12 0":       'Z',
		"12 (a) Z b) S 1 12 12 0":      'S',
		"12 (two words) D 1 12 12 0":   'D',
		"12 (brackets ))) R 1 12 12 0": 'R',
		"12 (cut off)":                 0,
		"":                             0,
	} {
		if got := state([]byte(stat)); got != want {
			t.Errorf("%q: %q, want %q", stat, got, want)
		}
	}
}
