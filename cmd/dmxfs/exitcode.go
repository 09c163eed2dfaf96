package main

import "github.com/dmxfs/dmxfs/internal/exitcode"

// The exit numbers by short names; dmxfs run has others as well, see runcmd.go.
const (
	exitOK      = exitcode.OK
	exitFailure = exitcode.Failure
	exitUsage   = exitcode.Usage
	exitNoMount = exitcode.NoMount
	exitRefused = exitcode.Refused
	exitBusy    = exitcode.Busy
	exitSick    = exitcode.Sick
)

func withCode(code int, err error) error { return exitcode.With(code, err) }
func exitCode(err error) int             { return exitcode.Of(err) }
