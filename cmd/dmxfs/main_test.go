package main

import (
	"flag"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/long"
)

// asMain makes the test binary be the program: the daemons that tests start
// are the code under test, with the race detector if the tests have it.
const asMain = "DMXFS_TEST_MAIN"

// TestMain is the program itself, or a helper of a test, or the tests.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asMain) != "":
		asSuccessor()
		doctor.TurnsInARow = long.Or(50, doctor.TurnsInARow)
		main()
	case os.Getenv(helperEnv) != "":
		helperMain(os.Getenv(helperEnv), os.Args[1:])
	default:
		// Tests of failures wait for most of their time, so that there can be
		// more of them than processors.
		flag.Parse()
		if *storageFull { // what tests start has all its repetitions, too
			_ = os.Setenv(long.Env, "1")
		}
		if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
			if err := flag.Set("test.parallel", parallel); err != nil {
				panic(err)
			}
		}
		signalsForChildren()
		remove := long.Scratch()
		code := m.Run()
		remove()
		os.Exit(code)
	}
}

// signalsForChildren has programs that tests start be ended by the signals that
// tests send, also where the tests run in the background of a script or under
// nohup: what a process ignores, those that it starts ignore, too. What it
// catches they do not.
func signalsForChildren() {
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // and nothing comes of it
		}
	}
}
