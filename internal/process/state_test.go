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

// What cannot end has to do with the first thread as well as with others.
func TestEnds(t *testing.T) {
	for stat, want := range map[string]bool{
		"12 (dmxfs) D 1 12 12 0 -1 4194560 100": false,
		"12 (dmxfs) D 1 12 12 0 -1 4194564 100": true,
		"12 (a 4) b) S 1 12 12 0 -1 4194308":    true,
		"12 (cut off) D 1 12":                   false,
		"":                                      false,
	} {
		if got := ends([]byte(stat)); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
	const before = " D 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 11 12 13 14 15 16 17 18 19 "
	for stat, want := range map[string]bool{
		"12 (dmxfs)" + before + "256 0 4096 512":  true,
		"12 (a 4) b)" + before + "66304 0 0 0":    true,
		"12 (dmxfs)" + before + "512 256 256 256": false, // blocked, ignored and caught
		"12 (cut off)" + before:                   false,
		"":                                        false,
	} {
		if got := killed([]byte(stat)); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}
