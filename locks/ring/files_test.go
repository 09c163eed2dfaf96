package ring

import (
	"testing"

	"github.com/dmxfs/dmxfs/locks/locktest"
)

func TestStories(t *testing.T) { locktest.RunFiles(t, Algorithm, options, "testdata") }
