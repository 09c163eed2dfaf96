package main

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// Storage on which no mount would be made is found out before anybody is waited
// for: also with caches of names that outlast the patience.
func TestDoctorOfStorageThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	var side parts
	defer side.Wait()
	for cannot, want := range map[string]string{
		"link":   "not fit for dmxfs: ",
		"answer": "the storage does not answer",
	} {
		side.run(t, cannot, func(t *testing.T) {
			c := newCluster(t, 0)
			out, err := c.try("doctor", "--listen", "127.0.0.1:0", c.lame(cannot))
			if code(err) != exitcode.Failure || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "waiting for the other host") {
				t.Errorf("%s %v\nwant code %d, and %q", out, err, exitcode.Failure, want)
			}
		})
	}
}
