package exitcode

import "errors"

// Exit numbers. They are for ever: a number that is retired is not used again.
// dmxfs run has those of the command that it runs, and 123 to 127 of its own.
const (
	OK      = 0
	Failure = 1 // the operation failed; stderr says why
	Usage   = 2 // the command line or a configuration file is wrong
	NoMount = 3 // no daemon serves the mount point that was meant
	Refused = 4 // the cluster or the shared directory does not let this node in
	Busy    = 5 // in use: the mount point, the state directory, or files below a mount
	Sick    = 6 // status: the mount is served, but locks cannot be had, or something is wrong
)

// coded carries the exit number of a failure.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// With makes err end the process with code. Of several the outermost counts.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &coded{code, err}
}

// Given is the number that [With] gave err; ok is false if it gave none.
func Given(err error) (code int, ok bool) {
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code, true
	}
	return 0, false
}

// Of is the number for err, which may be nil.
func Of(err error) int {
	if err == nil {
		return OK
	}
	if code, ok := Given(err); ok {
		return code
	}
	return Failure
}
