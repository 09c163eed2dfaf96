package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// modelled is an open file of which it is known what is in it.
type modelled struct {
	fd     int
	model  []byte
	most   int // bytes
	mapped []byte
	did    []string // the last steps
}

// openModelled opens a file that has the content model.
func openModelled(name string, model []byte, most int) (*modelled, error) {
	m := &modelled{fd: -1, model: model, most: most}
	err := retry(func() (err error) {
		m.fd, err = unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return m, nil
}

func (m *modelled) close() error {
	if m.mapped != nil {
		if err := unix.Munmap(m.mapped); err != nil {
			return err
		}
		m.mapped = nil
	}
	return unix.Close(m.fd)
}

// mapping is the file in memory, up to the most that it may have.
func (m *modelled) mapping() (_ []byte, err error) {
	if m.mapped == nil {
		m.mapped, err = unix.Mmap(m.fd, 0, m.most, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	return m.mapped, err
}

// step does something, and checks it. What is written through the mapping is written out
// if sync says so.
func (m *modelled) step(r *rand.Rand, sync bool) error {
	ops := []struct {
		name string
		do   func(r *rand.Rand) error
	}{
		{"write", m.write}, {"write", m.write}, {"read", m.read}, {"read", m.read}, {"truncate", m.truncate},
		{"write mapped", func(r *rand.Rand) error { return m.writeMapped(r, sync) }},
		{"read mapped", m.readMapped}, {"punch", m.punch}, {"all", m.all},
	}
	op := ops[r.IntN(len(ops))]
	m.did = append(m.did[max(0, len(m.did)-20):], fmt.Sprintf("%s at %d bytes", op.name, len(m.model)))
	if err := op.do(r); err != nil {
		return fmt.Errorf("%v: %w", m.did, err)
	}
	return nil
}

// set is what a write of b at off does to the model.
func (m *modelled) set(b []byte, off int) {
	if n := off + len(b); n > len(m.model) {
		m.model = append(m.model, make([]byte, n-len(m.model))...)
	}
	copy(m.model[off:], b)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func (m *modelled) write(r *rand.Rand) error {
	off := r.IntN(min(len(m.model)+5000, m.most))
	b := randomBytes(r, 1+r.IntN(min(m.most-off, 20_000)))
	for done := 0; done < len(b); {
		var n int
		err := retry(func() (err error) { n, err = unix.Pwrite(m.fd, b[done:], int64(off+done)); return err })
		if err != nil {
			return err
		}
		m.set(b[done:done+n], off+done)
		done += n
	}
	return nil
}

func (m *modelled) read(r *rand.Rand) error {
	if len(m.model) == 0 {
		return nil
	}
	off := r.IntN(len(m.model))
	return m.readAt(off, 1+r.IntN(20_000))
}

func (m *modelled) all(*rand.Rand) error {
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return err
	}
	if st.Size != int64(len(m.model)) {
		return fmt.Errorf("WRONG SIZE: %d", st.Size)
	}
	return m.readAt(0, m.most+1)
}

func (m *modelled) readAt(off, n int) error {
	b := make([]byte, n)
	if err := retry(func() (err error) { n, err = unix.Pread(m.fd, b, int64(off)); return err }); err != nil {
		return err
	}
	return differ(b[:n], m.model[off:min(off+len(b), len(m.model))], off)
}

// differ is an error if got, which is from off on, is not want.
func differ(got, want []byte, off int) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Errorf("WRONG BYTES at %d: %d of them, % x..., want %d, % x...", off+i, len(got), got[i:min(i+8, len(got))], len(want), want[i:min(i+8, len(want))])
}

func (m *modelled) truncate(r *rand.Rand) error {
	n := r.IntN(m.most)
	if err := retry(func() error { return unix.Ftruncate(m.fd, int64(n)) }); err != nil {
		return err
	}
	if n < len(m.model) {
		m.model = m.model[:n:n]
	}
	m.set(nil, n)
	return nil
}

func (m *modelled) writeMapped(r *rand.Rand, sync bool) error {
	if len(m.model) == 0 {
		return nil
	}
	mem, err := m.mapping()
	if err != nil {
		return err
	}
	off := r.IntN(len(m.model))
	b := randomBytes(r, 1+r.IntN(min(len(m.model)-off, 5000)))
	copy(mem[off:], b)
	m.set(b, off)
	if sync || r.IntN(4) == 0 {
		return retry(func() error { return unix.Msync(mem, unix.MS_SYNC) })
	}
	return nil
}

func (m *modelled) readMapped(r *rand.Rand) error {
	if len(m.model) == 0 {
		return nil
	}
	mem, err := m.mapping()
	if err != nil {
		return err
	}
	off := r.IntN(len(m.model))
	n := 1 + r.IntN(min(len(m.model)-off, 20_000))
	return differ(mem[off:off+n], m.model[off:off+n], off)
}

func (m *modelled) punch(r *rand.Rand) error {
	if len(m.model) == 0 {
		return nil
	}
	off := r.IntN(len(m.model))
	n := 1 + r.IntN(min(len(m.model)-off, 10_000))
	err := retry(func() error {
		return unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	})
	if err == nil {
		m.set(make([]byte, n), off)
	}
	return err
}

const modelSize = 200_000

// changesOwn changes a file of which nobody else knows, without a lock, keeps it open, and
// opens it anew at times.
func (w *outliver) changesOwn() func() error {
	var m *modelled
	name := filepath.Join(w.dir, w.who)
	return func() (err error) {
		if m == nil {
			fd, err := w.makes(name, unix.O_RDWR)
			if err != nil {
				return err
			}
			m = &modelled{fd: fd, most: modelSize}
		}
		switch w.r.IntN(30) {
		case 0:
			if err := m.close(); err != nil {
				return err
			}
			if m, err = openModelled(name, m.model, modelSize); err != nil {
				return err
			}
		case 1:
			if err := retry(func() error { return unix.Fsync(m.fd) }); err != nil {
				return fmt.Errorf("fsync: %w", err)
			}
		}
		return m.step(w.r, false)
	}
}

// changesRemoved changes files that have no name any more: one that was removed, one in
// whose place another one was put, and one that never had one.
func (w *outliver) changesRemoved() func() error {
	var open []*modelled
	name, other := filepath.Join(w.dir, w.who), filepath.Join(w.dir, w.who+"-other")
	begin := func() error {
		fd, err := w.makes(name, unix.O_RDWR)
		if err != nil {
			return err
		}
		m := &modelled{fd: fd, most: modelSize}
		open = append(open, m)
		for range w.r.IntN(3) {
			if err := m.step(w.r, false); err != nil {
				return err
			}
		}
		if w.r.IntN(2) == 0 {
			return w.removes(name)
		}
		fd, err = w.makes(other, unix.O_WRONLY)
		if err != nil {
			return err
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
		if err := w.moves(other, name); err != nil {
			return err
		}
		return w.removes(name)
	}
	return func() error {
		if len(open) < 5 {
			return begin()
		}
		i := w.r.IntN(len(open))
		if w.r.IntN(40) == 0 {
			m := open[i]
			open = append(open[:i], open[i+1:]...)
			if err := m.all(nil); err != nil {
				return fmt.Errorf("a file without a name: %w", err)
			}
			return m.close()
		}
		if err := open[i].step(w.r, false); err != nil {
			return fmt.Errorf("a file without a name: %w", err)
		}
		return nil
	}
}

// keepsMany has very many files open, a fifth of them locked, as long as it runs, and changes
// one after the other.
func (w *outliver) keepsMany() func() error {
	type one struct {
		fd   int
		text [8]byte
	}
	var files []*one
	begin := func() error {
		dir := filepath.Join(w.dir, w.who)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) && !w.doubts(err, "mkdir", dir) {
			return err
		}
		fd, err := w.makes(filepath.Join(dir, strconv.Itoa(len(files))), unix.O_RDWR)
		if err != nil {
			return err
		}
		f := &one{fd: fd}
		if files = append(files, f); len(files)%5 == 0 {
			if err := lockCall("flock", fd, true); err != nil {
				return err
			}
		}
		_, err = unix.Pwrite(fd, f.text[:], 0)
		return err
	}
	return func() error {
		for range min(20, w.many-len(files)) {
			if err := begin(); err != nil {
				return err
			}
		}
		f := files[w.r.IntN(len(files))]
		var got [9]byte
		if n, err := unix.Pread(f.fd, got[:], 0); err != nil || string(got[:n]) != string(f.text[:]) {
			return fmt.Errorf("one of %d files that are open: read %q, want %q: %v", len(files), got[:n], f.text, err)
		}
		text := fmt.Sprintf("%08d", w.r.IntN(100_000_000))
		if _, err := unix.Pwrite(f.fd, []byte(text), 0); err != nil {
			return fmt.Errorf("one of %d files that are open: write: %w", len(files), err)
		}
		copy(f.text[:], text)
		return nil
	}
}

// makesLonger changes the last page of a file through a mapping, and makes the file longer
// by a write from somewhere in that page on: it is the kernel's to write both out, and what
// it knows of the end of the file is late.
func (w *outliver) makesLonger() func() error {
	const most = 20_000
	var m *modelled
	return func() (err error) {
		if m == nil {
			fd, err := w.makes(filepath.Join(w.dir, w.who), unix.O_RDWR)
			if err != nil {
				return err
			}
			m = &modelled{fd: fd, most: most}
		}
		n := 1 + w.r.IntN(most/2)
		if err := retry(func() error { return unix.Ftruncate(m.fd, int64(n)) }); err != nil {
			return err
		}
		if n < len(m.model) {
			m.model = m.model[:n:n]
		}
		m.set(nil, n)
		if err := m.writeMapped(w.r, false); err != nil {
			return err
		}
		mem, err := m.mapping()
		if err != nil {
			return err
		}
		mem[n-1], m.model[n-1] = 'x', 'x'
		b := randomBytes(w.r, 1+w.r.IntN(most-n))
		if _, err := unix.Pwrite(m.fd, b, int64(n)); err != nil {
			return err
		}
		m.set(b, n)
		if err := m.all(nil); err != nil {
			return fmt.Errorf("made longer, from %d by %d bytes: %w", n, len(b), err)
		}
		return nil
	}
}

const sharedSize = 60_000

// changesShared changes a file under a lock that all hosts change, with its mapping.
func (w *outliver) changesShared() func() error {
	g, err := w.guard(w.kind)
	var m *modelled
	return func() error {
		if err != nil {
			return err
		}
		if m == nil {
			if m, err = openModelled(filepath.Join(w.dir, "data"), nil, sharedSize); err != nil {
				return err
			}
		}
		kind := "flock"
		if err := lockCall(kind, m.fd, true); err != nil {
			return err
		}
		err := g.with(func() error {
			return g.update(func(truth []byte) ([]byte, error) {
				m.model = bytes.Clone(truth)
				m.did = append(m.did, "is locked")
				for range 1 + w.r.IntN(4) {
					if err := m.step(w.r, true); err != nil {
						return nil, err
					}
				}
				return m.model, nil
			})
		})
		if err != nil {
			return err
		}
		if err := lockCall(kind, m.fd, false); err != nil {
			return err
		}
		if w.r.IntN(30) == 0 {
			err := m.close()
			m = nil
			return err
		}
		return nil
	}
}

// replaces puts a file in the place of another one under a lock, as all hosts do, and
// keeps open some that were replaced.
func (w *outliver) replaces() func() error {
	g, err := w.guard(w.kind)
	l := &lockedFile{kind: "flock", dir: w.dir, file: "anything", kept: true, lock: -1, fd: -1}
	type version struct {
		f    *os.File
		text string
	}
	var old []version
	name, temp := filepath.Join(w.dir, "current"), filepath.Join(w.dir, w.who)
	return func() error {
		if err != nil {
			return err
		}
		err := l.with(func() error {
			return g.with(func() error {
				return g.update(func(truth []byte) ([]byte, error) {
					f, err := os.Open(name)
					if err != nil {
						return nil, err
					}
					old = append(old, version{f, string(truth)})
					text := fmt.Appendf(nil, "%s %d\n", w.who, w.state.steps.Load())
					fd, err := w.makes(temp, unix.O_WRONLY)
					if err != nil {
						return nil, err
					}
					if err := retry(func() error { _, err := unix.Write(fd, text); return err }); err != nil {
						return nil, err
					}
					if err := unix.Close(fd); err != nil {
						return nil, err
					}
					if err := w.moves(temp, name); err != nil {
						return nil, err
					}
					b, err := os.ReadFile(name)
					if err != nil {
						return nil, err
					}
					return text, differ(b, text, 0)
				})
			})
		})
		for _, v := range old {
			b := make([]byte, 200)
			n, _ := v.f.ReadAt(b, 0)
			if err == nil {
				err = differ(b[:n], []byte(v.text), 0)
			}
		}
		if err == nil && len(old) > 6 {
			err = old[0].f.Close()
			old = old[1:]
		}
		return err
	}
}
