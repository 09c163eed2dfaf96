package fusefs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// ErrLedger is the error of a ledger that is damaged, or of another form or generation,
// or that lacks something: nothing of it can be used.
var ErrLedger = errors.New("what the daemon that was killed has left of the mount cannot be used")

func badLedger(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLedger, fmt.Sprintf(format, args...))
}

// OpenRequests is for a process that has got the descriptor of the memory of another one
// which was killed, see [ResumeKilled]. fd belongs to the result, unless there is an error.
func OpenRequests(fd int, generation uint64) (*Requests, error) {
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case err != nil:
		return nil, badLedger("descriptor %d has no requests (%v)", fd, err)
	case has&requestSeals != requestSeals || has&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 || st.Size != int64(requestsBytes):
		return nil, badLedger("the memory of requests has %d bytes, and should have %d that stay", st.Size, requestsBytes)
	}
	m, err := mapRequests(fd)
	if err != nil {
		return nil, fmt.Errorf("the memory of requests: %w", err)
	}
	err = m.check(generation)
	if err != nil {
		unix.Munmap(m.mem)
		return nil, err
	}
	return m, nil
}

func (m *Requests) check(generation uint64) error {
	h := m.h
	switch {
	case atomic.LoadUint64(&h.magic) != requestsMagic:
		return badLedger("the memory of requests does not begin as it should")
	case h.version != LedgerVersion:
		return badLedger("the requests are of version %d, and this program has %d", h.version, LedgerVersion)
	case h.generation != generation:
		return badLedger("the requests are of generation %d, and not %d", h.generation, generation)
	case h.elsewhere.Load() != 0:
		return badLedger("%d requests were kept elsewhere", h.elsewhere.Load())
	}
	for i := range m.areas {
		a := &m.areas[i]
		if a.top = int(h.tops[i].Load()); a.top > a.most {
			return badLedger("%d slots for requests are more than there can be", a.top)
		}
	}
	return nil
}

// leftOf are the requests that were under way, in their order, and the answers of those
// that were done; fd tells what has become of a descriptor.
func (m *Requests) leftOf(fd func(old int) int) (left []leftRequest, answers []leftAnswer, err error) {
	seen := map[uint64]bool{}
	withdrawn := map[uint64]bool{}
	for _, area := range [...]int{smallArea, largeArea} { // copies first
		for i := range m.areas[area].top {
			s := m.slot(area, i)
			if p := s.phase.Load(); p&(1<<phaseBits-1) == phaseFree || p == phaseReading && head(s.data).Length == 0 {
				continue
			}
			in, err := s.request()
			if err != nil {
				return nil, nil, err
			}
			switch h := head(in); {
			case h.Opcode == opInterrupt:
				if len(in) >= int(unsafe.Sizeof(fuse.InterruptIn{})) {
					withdrawn[(*fuse.InterruptIn)(unsafe.Pointer(h)).Unique] = true
				}
			case seen[h.Unique]: // it was just copied
			case s.phase.Load() == phaseDone && s.answerSize == 0: // FORGET
				seen[h.Unique] = true
			case s.phase.Load() == phaseDone:
				seen[h.Unique] = true
				a, err := s.noted(in)
				if err != nil {
					return nil, nil, err
				}
				answers = append(answers, a)
			default:
				seen[h.Unique] = true
				x, err := s.leaves(in, fd)
				if err != nil {
					return nil, nil, err
				}
				left = append(left, x)
			}
		}
	}
	for i := range left {
		x := &left[i]
		x.Interrupted = x.Interrupted || withdrawn[head(x.Bytes).Unique]
	}
	slices.SortStableFunc(left, func(a, b leftRequest) int { return cmp.Compare(head(a.Bytes).Unique, head(b.Bytes).Unique) })
	return left, answers, nil
}

// request is a copy of the one in s, which is in use.
func (s *slot) request() ([]byte, error) {
	size := int(head(s.data).Length)
	p := s.phase.Load()
	if size < headSize || size > min(len(s.data), largeSize-pageSize) || p&(1<<phaseBits-1) > phaseDone || p>>phaseBits > 1 ||
		p != phaseReading && size != int(s.size) {
		return nil, badLedger("slot %d has a request of %d bytes in phase %x", s.i, size, p)
	}
	return slices.Clone(s.data[:size]), nil
}

// noted is the answer in s.
func (s *slot) noted(in []byte) (a leftAnswer, err error) {
	size := int(s.answerSize)
	if size < readHead || size > len(s.answer) {
		return a, badLedger("slot %d has an answer of %d bytes", s.i, size)
	}
	h := *(*fuse.OutHeader)(unsafe.Pointer(&s.answer[0]))
	if int(h.Length) != size || h.Unique != head(in).Unique || h.Status > 0 || h.Status <= -maxErrno {
		return a, badLedger("slot %d has the answer of another request", s.i)
	}
	return leftAnswer{request: in[:min(len(in), pageSize)], bytes: slices.Clone(s.answer[:size])}, nil
}

// leaves is what is to be done with a request.
func (s *slot) leaves(in []byte, fd func(old int) int) (x leftRequest, err error) {
	x = leftRequest{Bytes: in, Interrupted: s.interrupted.Load() != 0}
	if s.phase.Load() != phaseReading {
		x.opened = s.opened.Load()
	}
	if h := s.reserved.Load(); h != 0 && s.phase.Load() != phaseReading {
		c := locks.Class(s.class)
		if s.keySize > keySpace || !slices.Contains(locks.Classes[:], c) {
			return x, badLedger("slot %d waits for a lock that there cannot be", s.i)
		}
		x.Key, x.Handle = locks.Key{File: string(s.key[:s.keySize]), Class: c}, locks.HandleID(h)
	}
	p := s.phase.Load()
	if p &= 1<<phaseBits - 1; p != phaseBegun && p != phaseMade {
		return x, nil
	}
	y := &past{phase: p, step: s.steps[s.phase.Load()>>phaseBits]}
	t := &y.step
	if t.n < 0 || t.n > maxCopy || t.errno < 0 || t.errno >= maxErrno || t.was.size < 0 || t.began < 0 || t.looked < t.began || t.protected > 1 || t.was.known > 1 {
		return x, badLedger("slot %d has a change that there cannot be", s.i)
	}
	if t.fd > 0 {
		t.fd = int32(fd(int(t.fd)-1) + 1)
	}
	x.past = y
	return x, nil
}

// Ended reports whether a process that was killed does nothing any more, so that another
// one may take over what it has left. It may not have ended: a thread that is in a
// notification to the kernel, which waits for a page, ends only when somebody answers the
// request that keeps the page locked, and that is the next process. It does nothing when
// it goes on. Whoever started the process need not have waited for it.
func (m *Requests) Ended(pid int) (bool, error) {
	tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	harmless := map[uint32]bool{}
	for i := range m.h.notifying {
		harmless[m.h.notifying[i].Load()] = true
	}
	for _, t := range tasks {
		tid, err := strconv.ParseUint(t.Name(), 10, 32)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", t.Name(), "stat"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return false, err
		}
		state := byte(0)
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) {
			state = stat[i+2]
		}
		dead := state == 'Z' || state == 'X'
		if !dead && (state != 'D' || !harmless[uint32(tid)]) {
			return false, nil
		}
	}
	return true, nil
}
