package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"golang.org/x/sys/unix"
)

// Version is that of the form. It changes with the parts.
const Version = 1

// Parts are what is carried.
type Parts struct {
	Head  []byte // what the daemon itself has to know
	Mount []byte // of package fusefs
	Locks []byte // of package engine
}

func (p *Parts) all() []*[]byte { return []*[]byte{&p.Head, &p.Mount, &p.Locks} }

const (
	magic = "dmxfs-up"
	head  = len(magic) + 8 // with the version and the checksum
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrVersion is the error of what a program with another form has left.
var ErrVersion = errors.New("what the process has left has another form")

var errDamaged = errors.New("what the process has left is damaged")

// encode is p in the form.
func encode(p *Parts) []byte {
	size := head
	for _, part := range p.all() {
		size += 8 + len(*part)
	}
	b := make([]byte, head, size)
	copy(b, magic)
	for _, part := range p.all() {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(*part)))
		b = append(b, *part...)
	}
	binary.LittleEndian.PutUint32(b[len(magic):], Version)
	binary.LittleEndian.PutUint32(b[len(magic)+4:], crc32.Checksum(b[head:], castagnoli))
	return b
}

// decode undoes encode. The parts share memory with b.
func decode(b []byte) (*Parts, error) {
	if len(b) < head || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin as it should", errDamaged)
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v != Version {
		return nil, fmt.Errorf("%w: version %d, and this program has %d", ErrVersion, v, Version)
	}
	sum := binary.LittleEndian.Uint32(b[len(magic)+4:])
	if b = b[head:]; crc32.Checksum(b, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum is another one", errDamaged)
	}
	p := &Parts{}
	for _, part := range p.all() {
		if len(b) < 8 {
			return nil, fmt.Errorf("%w: it is too short", errDamaged)
		}
		n := binary.LittleEndian.Uint64(b)
		if b = b[8:]; n > uint64(len(b)) {
			return nil, fmt.Errorf("%w: a part of it is too short", errDamaged)
		}
		*part, b = b[:n:n], b[n:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: it is too long", errDamaged)
	}
	return p, nil
}

// New is memory for Fill. The descriptor is closed by execve(2), unless its flag is
// taken away.
func New() (fd int, err error) {
	fd, err = unix.MemfdCreate("dmxfs-relay", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	return fd, nil
}

// Fill puts p into new memory, which nobody can change any more then.
func Fill(fd int, p *Parts) (err error) {
	for b := encode(p); len(b) > 0 && err == nil; {
		var n int
		n, err = unix.Write(fd, b)
		if err == nil {
			b = b[n:]
		} else if err == unix.EINTR {
			err = nil
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return fmt.Errorf("write down what is left: %w", err)
	}
	return nil
}

// Put is New and Fill.
func Put(p *Parts) (fd int, err error) {
	if fd, err = New(); err != nil {
		return -1, err
	}
	if err := Fill(fd, p); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Get reads what Put has written. fd stays open.
func Get(fd int) (*Parts, error) {
	const sealed = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealed != sealed {
		return nil, fmt.Errorf("%w: descriptor %d is not what was left", errDamaged, fd)
	}
	// No other descriptor is needed, and the offset stays for who reads it next.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		k, err := unix.Pread(fd, b[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			return nil, fmt.Errorf("read what was left: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		n += k
	}
	return decode(b)
}
