package ring

import (
	"testing"

	"dmxfs/locks/locktest"
)

func TestStories(t *testing.T) { locktest.RunFiles(t, Algorithm, options, "testdata") }
