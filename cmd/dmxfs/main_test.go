package main

import (
	"os"
	"testing"
)

// asMain makes the test binary be the program: the daemons that tests start
// are the code under test, with the race detector if the tests have it.
const asMain = "DMXFS_TEST_MAIN"

// TestMain is the program itself, or a helper of a test, or the tests.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asMain) != "":
		main()
	case os.Getenv(helperEnv) != "":
		helperMain(os.Getenv(helperEnv), os.Args[1:])
	default:
		os.Exit(m.Run())
	}
}
