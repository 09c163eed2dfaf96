package main

import (
	"flag"
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
		// Tests of failures wait for most of their time, so that there can be
		// more of them than processors.
		flag.Parse()
		if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
			if err := flag.Set("test.parallel", "6"); err != nil {
				panic(err)
			}
		}
		os.Exit(m.Run())
	}
}
