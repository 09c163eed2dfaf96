package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Text is a file in memory with b, to be read from its begin: for standard input of a process
// that must have it whatever becomes of this one. The name is for people.
func Text(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return f, nil
}
