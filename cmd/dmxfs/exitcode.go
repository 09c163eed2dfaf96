package main

import "errors"

// Exit numbers. They are for ever: a number that is retired is not used again.
const (
	exitOK      = 0
	exitFailure = 1 // the operation failed; stderr says why
	exitUsage   = 2 // the command line or a configuration file is wrong
	exitNoMount = 3 // no daemon serves the mount point that was meant
	exitRefused = 4 // the cluster or the shared directory does not let this node in
	exitBusy    = 5 // in use: the mount point, the state directory, or files below a mount
	exitSick    = 6 // status: the mount is served, but locks cannot be had, or something is wrong
)

// dmxfs run has those of the command that it runs, and 123 to 127 of its own;
// see runcmd.go.

// codedError carries the exit number of a failure.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode makes err end the process with code.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// exitCode is the number for err, which may be nil.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[*codedError](err); ok {
		return c.code
	}
	return exitFailure
}
