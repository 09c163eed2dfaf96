package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxPiece is the most that is read or written under one admission, and the
// size of the largest READ and WRITE.
const maxPiece = 1 << 20

// fileCalls serves requests about what is in files.
type fileCalls struct {
	*base
	actor       *actor
	attrs       *attrCache
	fence       *fence
	unprotected *unprotected
	memory      memory
}

func (fc *fileCalls) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return nil, fuse.EBADF
	}
	late := lateRead{old: fc.mayBeOld(in), notified: h.n.notified.Load()}
	direct, tries := in.Flags&unix.O_DIRECT != 0, orderTries
	for range behindTries {
		begun := uint64(0)
		if !direct {
			begun = h.n.writes.await(fc.conn, in)
		}
		n, st, behind := fc.read(cancel, h, in, buf, &late)
		if !behind && st.Ok() && !direct && tries > 0 && h.n.writes.since(begun, pagesOf(in.Offset, in.Size)) {
			tries--
			continue
		}
		switch {
		case !behind && st.Ok():
			return readBytes(buf[:n]), st
		case !behind:
			return nil, st
		}
		if err := fc.attrs.catchUp(h.n); err != nil {
			return nil, status(err)
		}
	}
	return nil, fuse.EIO
}

// read is Read, with a use of h of its own, and notes in late what it has waited for. behind: it
// has ended where the file does not, see behind.go.
func (fc *fileCalls) read(cancel <-chan struct{}, h *handle, in *fuse.ReadIn, buf []byte, late *lateRead) (n int, st fuse.Status, behind bool) {
	a, st := fc.fence.enter(cancel, h, &in.InHeader, reads)
	if !st.Ok() {
		return 0, st, false
	}
	h.n.again.Load().comes(in, fc.now())
	late.waited, late.old = late.waited || a.waited, late.old || a.unsure
	fc.attrs.growLate(h.n, h.fd)
	h.n.fills()
	h.n.notePages()
	fc.unprotected.noteKnown(h.n)
	fc.stats.Reads.Add(1)
	buf = buf[:min(len(buf), int(in.Size))]
	blocks := func() { fc.conn.blocks(in.Unique) }
	direct := in.Flags&unix.O_DIRECT != 0
	n, err := fc.memory.pread(h.fd, buf, int64(in.Offset), direct, blocks)
	if err == unix.EINVAL && !direct && h.buffer() {
		n, err = fc.memory.pread(h.fd, buf, int64(in.Offset), direct, blocks)
	}
	if err == nil && n < len(buf) && !direct {
		n = readOn(h, buf, n, int64(in.Offset))
	}
	if err == nil && n < len(buf) {
		end := int64(in.Offset) + int64(n)
		if h.n.isBehind(end) {
			fc.fence.leave(&a)
			return 0, fuse.OK, true
		}
		if !direct && fc.readAgain(h.n, in, end, *late) {
			fc.fence.leave(&a)
			return 0, fuse.EINTR, false
		}
		h.n.mayHaveSize(end) // the kernel takes it for that
	}
	fc.fence.leave(&a)
	if err == nil && h.n.cutShort(int64(in.Offset), n, len(buf)) {
		err = unix.EIO // the kernel could take what is missing for zeros
	}
	return n, status(err), false
}

// readOn reads on where a READ has met the end of the file, n bytes behind off, if somebody was told
// meanwhile that there is more: another host has made it longer. The kernel believes that by the time
// it has the answer, and would show zeros for what is missing.
func readOn(h *handle, buf []byte, n int, off int64) int {
	for n < len(buf) && off+int64(n) < h.n.bounds.most.Load() {
		more, err := pread(h.fd, buf[n:], off+int64(n))
		if err != nil || more == 0 {
			break // it was as long as that, and is not any more
		}
		n += more
	}
	return n
}

// readBytes are the first bytes of the buffer that Read was given. Unlike
// fuse.ReadResultData they are not copied to where they are already.
type readBytes []byte

func (b readBytes) Bytes([]byte) ([]byte, fuse.Status) { return b, fuse.OK }
func (b readBytes) Size() int                          { return len(b) }
func (b readBytes) Done()                              {}

func (fc *fileCalls) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if in.WriteFlags&fuse.WRITE_CACHE != 0 {
		return fc.writePieces(cancel, in, data)
	}
	h := fc.handles.get(in.Fh)
	if h == nil {
		return 0, fuse.EBADF
	}
	h.n.writes.begin(in, false)
	defer written(fc.base, h.n, in)
	if in.Flags&unix.O_APPEND != 0 && in.Flags&unix.O_DIRECT != 0 {
		return fc.appendDirectly(cancel, in, data)
	}
	return fc.writePieces(cancel, in, data)
}

func (fc *fileCalls) writePieces(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	// With FUSE_ASYNC_DIO the kernel makes EIO of a part of what it has sent.
	direct := in.WriteFlags&fuse.WRITE_CACHE == 0 && in.Flags&unix.O_DIRECT != 0
	var done uint32
	stays := false
	again := true
	for _, b := range data {
		for len(b) > 0 {
			if done > 0 && !stays {
				stays = true
				defer fc.pause.stay()()
			}
			piece := b[:min(len(b), maxPiece)]
			n, st := fc.write(cancel, in, piece, int64(in.Offset)+int64(done))
			done += uint32(n)
			if again && fc.fence.spaceFreed(cancel, unix.Errno(st)) {
				again = false
				b = b[n:]
				continue
			}
			if !st.Ok() && done > 0 && st != fuse.EIO && !direct {
				return done, fuse.OK // the error comes again with the rest
			}
			if !st.Ok() {
				return 0, st
			}
			b = b[n:]
		}
	}
	return done, fuse.OK
}

func (fc *fileCalls) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return fc.Writev(cancel, in, [][]byte{data})
}

// write writes one piece. With an error n may be more than 0.
func (fc *fileCalls) write(cancel <-chan struct{}, in *fuse.WriteIn, b []byte, off int64) (n int, st fuse.Status) {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return 0, fuse.EBADF
	}
	// Pages that the kernel writes back come through any handle that can
	// write, whose flags mean nothing for them.
	back := in.WriteFlags&fuse.WRITE_CACHE != 0
	if !back {
		if err := h.tell(false); err != nil {
			fc.ledger.told(&in.InHeader, h)
			return 0, status(err)
		}
	}
	appends := !back && in.Flags&unix.O_APPEND != 0
	if fc.storage.ClientCache || in.Flags&(unix.O_DIRECT|unix.O_DSYNC) != 0 {
		fc.conn.blocks(in.Unique)
	}
	c := &change{in: &in.InHeader, op: "write", h: h, back: back, off: off}
	if appends {
		c.data = b
	} else if !back {
		c.writes = b
	}
	call := func() (err error) {
		h.n.fills()
		h.n.notePages()
		fc.unprotected.noteKnown(h.n)
		if h.flags&unix.O_APPEND != 0 && !appends {
			err = unix.EPERM // chattr +a: pwrite(2) would append, wherever it belongs
		} else if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
			err = fc.actor.dropSetID(&in.InHeader, h.fd)
		}
		put := func() error {
			if back {
				n, err = fc.putBack(h, b, n, off)
				return err
			}
			m, err := fc.put(h, b[n:], off+int64(n), appends)
			n += m
			return err
		}
		if err == nil {
			err = fc.actor.chargedUnless(back, &in.InHeader, put)
		}
		if err == unix.EINVAL && (back || in.Flags&unix.O_DIRECT == 0) && h.buffer() {
			err = fc.actor.chargedUnless(back, &in.InHeader, put)
		}
		c.length, c.partly = n, n > 0
		h.n.mayReach(off + int64(n))
		if back && err != nil && err != errBehind {
			fc.pageIsLost(h.n)
		}
		return err
	}
	err := errBehind
	for tries := 0; err == errBehind && tries < behindTries; tries++ {
		if tries > 0 {
			if err := fc.attrs.catchUp(h.n); err != nil {
				if back {
					fc.pageIsLost(h.n)
				}
				return n, status(err)
			}
		}
		if err = fc.fence.change(cancel, c, call); c.repeated {
			n = c.length
		}
		h.n.mayReach(off + int64(n)) // again: a truncation may have been answered meanwhile
	}
	if back && err == errBehind {
		fc.pageIsLost(h.n)
	}
	return n, status(err)
}

// pageIsLost notes that a page was not written back.
func (fc *fileCalls) pageIsLost(n *node) {
	n.unwritten.pages.Add(1)
	n.noteUnwritten()
}

// putBack is put for a page that the kernel writes back, of which n bytes are written, and
// returns how many are. No such page makes a file longer: what is beyond the end is dropped.
// The kernel, which drops that itself, may believe that the file is as long as it was before
// another host has made it shorter.
func (fc *fileCalls) putBack(h *handle, b []byte, n int, off int64) (int, error) {
	var st unix.Stat_t
	if err := retryEINTR(func() error { return unix.Fstat(h.fd, &st) }); err != nil {
		return n, err
	}
	size := len(b)
	if off+int64(size) > st.Size {
		if h.n.isBehind(st.Size) {
			return n, errBehind
		}
		size = int(max(st.Size-off, 0))
	}
	for n < size {
		m, err := fc.put(h, b[n:size], off+int64(n), false)
		if n += m; err != nil || m == 0 {
			return n, err
		}
	}
	return len(b), nil
}

func (fc *fileCalls) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	a, st := fc.fence.enter(cancel, h, &in.InHeader, syncs)
	if !st.Ok() {
		return st
	}
	defer fc.fence.leave(&a)
	fc.conn.blocks(in.Unique)
	const dataOnly = 1
	err := fc.fence.syncs(&in.InHeader, h, func(fd int) error {
		if in.FsyncFlags&dataOnly != 0 {
			return unix.Fdatasync(fd)
		}
		return unix.Fsync(fd)
	})
	before := h.tell(false)
	if before != nil {
		fc.ledger.told(&in.InHeader, h)
	}
	if err == nil {
		err = before
	}
	return status(err)
}

func (fc *fileCalls) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	a, st := fc.fence.enter(cancel, h, &in.InHeader, reads)
	if !st.Ok() {
		return st
	}
	defer fc.fence.leave(&a)
	off, err := unix.Seek(h.fd, int64(in.Offset), int(in.Whence))
	if err != nil {
		return status(err)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

func (fc *fileCalls) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	st := fc.fallocate(cancel, in)
	if fc.fence.spaceFreed(cancel, unix.Errno(st)) {
		st = fc.fallocate(cancel, in)
	}
	return st
}

func (fc *fileCalls) fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	h := fc.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	c := &change{in: &in.InHeader, op: "fallocate", h: h, off: int64(in.Offset), length: int(in.Length)}
	h.n.mayReach(int64(in.Offset + in.Length))
	defer h.n.mayReach(int64(in.Offset + in.Length)) // a truncation may have been answered meanwhile
	return status(fc.fence.change(cancel, c, func() error {
		if err := fc.actor.dropSetIDFor(&in.InHeader, h.fd); err != nil {
			return err
		}
		return fc.actor.charged(&in.InHeader, func() error {
			return unix.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length))
		})
	}))
}

// maxCopy keeps the answer to COPY_FILE_RANGE within its 32 bits.
const maxCopy = 1 << 30

// CopyFileRange copies in pieces, each with its own admission to both files, and
// like copy_file_range(2) may end early.
func (fc *fileCalls) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	src, dst := fc.handles.get(in.FhIn), fc.handles.get(in.FhOut)
	if src == nil || dst == nil {
		return 0, fuse.EBADF
	}
	if done, err := fc.fence.copied(&in.InHeader, int64(in.OffOut)); done > 0 || err != nil {
		return uint32(done), partly(int(done), status(err))
	}
	length := int(min(in.Len, maxCopy))
	caughtUp := false
	for done := 0; done < length; {
		n := 0
		roff, woff := int64(in.OffIn)+int64(done), int64(in.OffOut)+int64(done)
		c := &change{in: &in.InHeader, op: "copy_file_range", h: dst, from: src, off: woff}
		err := fc.fence.change(cancel, c, func() error {
			if err := fc.actor.dropSetIDFor(&in.InHeader, dst.fd); err != nil {
				return err
			}
			return fc.actor.charged(&in.InHeader, func() (err error) {
				err = fc.gate().Write(func() (err error) {
					n, err = unix.CopyFileRange(src.fd, &roff, dst.fd, &woff, min(length-done, maxPiece), int(in.Flags))
					return err
				})
				c.length = n
				if dst.n.mayReach(woff); n > 0 {
					fc.fence.lengthened(dst, woff)
				}
				return err
			})
		})
		if err != nil {
			return uint32(done), partly(done, status(err))
		}
		if c.repeated {
			n = c.length
		}
		dst.n.mayReach(int64(in.OffOut) + int64(done+n)) // a truncation may have been answered meanwhile
		if n == 0 && !caughtUp && src.n.isBehind(roff) {
			caughtUp = true
			if err := fc.attrs.catchUp(src.n); err == nil {
				continue
			}
		}
		if n == 0 {
			return uint32(done), fuse.OK
		}
		done += n
		if closed(cancel) {
			return uint32(done), fuse.OK
		}
	}
	return uint32(length), fuse.OK
}

// partly hides an error behind what was done before it, unless that is worth
// nothing.
func partly(done int, st fuse.Status) fuse.Status {
	if done > 0 && st != fuse.EIO {
		return fuse.OK
	}
	return st
}
