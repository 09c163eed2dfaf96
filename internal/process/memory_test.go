package process

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The pages of the program that were used before main are given back.
func TestDropProgram(t *testing.T) {
	resident := func() (kB int) {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "RssFile:")
		if _, err := fmt.Sscan(rest, &kB); err != nil {
			t.Fatal(err)
		}
		return kB
	}
	before := resident()
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after >= before {
		t.Errorf("%d kB of files are resident, %d kB were", after, before)
	}
}
