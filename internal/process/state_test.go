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

// A process that was killed, and is in a system call, has the signal before it.
func TestKilledInStatus(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tdmxfs\nState:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true,
		"Name:\tdmxfs\nState:\tD (disk sleep)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n": false,
		"Name:\tdmxfs\nState:\tD (disk sleep)\nSigPnd:\t0000000000004200\n":                            false,
		"Name:\tSigPnd:\nSigPnd:\tx\n": false,
		"":                             false,
	} {
		if got := killed([]byte(status)); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}
