package again

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	badTries = 200
	badPause = 5 * time.Millisecond
)

// Call repeats a system call that was interrupted by a signal of the Go runtime. For a second
// it also repeats one that ends with EBADFD, which the kernel never says of a file: GlusterFS
// does, when it answers by a descriptor of the same file that is just being opened or closed
// for somebody else.
func Call(f func() error) error {
	for tries := 0; ; {
		switch err := f(); {
		case err == unix.EINTR:
		case err == unix.EBADFD && tries < badTries:
			tries++
			time.Sleep(badPause)
		default:
			return err
		}
	}
}
