package fusefs

import "golang.org/x/sys/unix"

// making is call, which makes a name that must not be there, such that it
// fails with EEXIST if it is. Protocols that have no such error, like that of
// sftp, make their clients say EPERM or EIO, and programs that wait for a lock
// file take that for the end.
func making(userspace bool, dir *node, name string, call func() error) func() error {
	if !userspace {
		return call
	}
	return func() (err error) {
		for range makingTries {
			err = retryEINTR(call)
			if err != unix.EPERM && err != unix.EIO && err != unix.EACCES {
				return err
			}
			var st unix.Stat_t
			if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				return unix.EEXIST
			}
			// It may have been there, and be gone by now.
		}
		return err
	}
}

// makingTries is how often a name is made that was there each time, and then
// was not, before an error is taken to mean what it says.
const makingTries = 5
