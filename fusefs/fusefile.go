package fusefs

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// fuseFile is /dev/fuse, open for a mount. It is read and written by several goroutines at a
// time, and a system call there makes no garbage: there are two for each request.
type fuseFile struct {
	file  *os.File
	raw   syscall.RawConn // file's
	calls sync.Pool       // of *fuseCall
}

// newFuseFile takes file.
func newFuseFile(file *os.File) (*fuseFile, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	f := &fuseFile{file: file, raw: raw}
	f.calls.New = func() any {
		c := new(fuseCall)
		c.read, c.write = c.doRead, c.doWrite
		return c
	}
	return f, nil
}

// fuseCall is a system call with what it comes to.
type fuseCall struct {
	b           []byte
	n           int
	err         error
	read, write func(fd uintptr) // its methods, as RawConn takes them
}

func (c *fuseCall) doRead(fd uintptr) {
	for {
		if c.n, c.err = unix.Read(int(fd), c.b); c.err != unix.EINTR { // by a signal of the runtime
			return
		}
	}
}

func (c *fuseCall) doWrite(fd uintptr) { c.n, c.err = unix.Write(int(fd), c.b) }

func (f *fuseFile) close() { f.file.Close() }

// read waits for a request, which is then in b.
func (f *fuseFile) read(b []byte) (n int, err error) {
	c := f.calls.Get().(*fuseCall)
	return f.done(c, b, c.read)
}

// write gives an answer to the kernel.
func (f *fuseFile) write(b []byte) error {
	c := f.calls.Get().(*fuseCall)
	_, err := f.done(c, b, c.write)
	return err
}

// done makes the call, and c is for others then.
func (f *fuseFile) done(c *fuseCall, b []byte, call func(fd uintptr)) (n int, err error) {
	c.b, c.n, c.err = b, 0, nil
	if err = f.raw.Control(call); err == nil {
		n, err = c.n, c.err
	}
	c.b = nil
	f.calls.Put(c)
	return n, err
}
