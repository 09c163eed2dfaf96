package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// side is one of the two sides, as the doctor has it: something that
// reads orders and writes reports, one of each at a time.
type side struct {
	where string // here, there
	out   io.Writer
	lines chan []byte // closed when the side is gone
	end   func()

	dev     uint64 // of its directory
	real    string // path of its directory, see RealPath
	pending bool   // it has an order whose report was not waited for
}

func newSide(where string, in io.Reader, out io.Writer, end func()) *side {
	s := &side{where: where, out: out, lines: make(chan []byte, 1), end: end}
	go func() {
		defer close(s.lines)
		for r := bufio.NewReaderSize(in, maxLine); ; {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			s.lines <- append([]byte(nil), line...)
		}
	}()
	return s
}

// startHands starts a process for the storage that source is on. It is not
// waited for longer than a moment: storage that hangs may keep it for ever.
func startHands(where, source string) (*side, error) {
	out, w, err := os.Pipe() // not StdoutPipe, which Wait closes
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// As root, with a mount namespace of its own.
	var cmd *exec.Cmd
	var in io.WriteCloser
	for _, private := range []bool{true, false} {
		cmd = exec.Command("/proc/self/exe", HandsCommand, fmt.Sprintf("--private=%t", private), "--", source)
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // a Ctrl-C is for the doctor, which lets it tidy up
		if private {
			cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
		}
		if in, err = cmd.StdinPipe(); err != nil {
			break
		}
		cmd.Stdout = w
		if err = cmd.Start(); !errors.Is(err, unix.EPERM) {
			break
		}
	}
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start a process for %s: %w", source, err)
	}
	return newSide(where, out, in, func() {
		in.Close()
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Second):
			_ = cmd.Process.Kill()
		}
		out.Close()
	}), nil
}

// errPartnerGone: there is nobody any more who does orders.
var errPartnerGone = errors.New("the other side is gone before all was examined")

// errTooLong is why an examination ends that --patience is over.
var errTooLong = errors.New("--patience is over")

// give gives an order, without waiting for its report.
func (s *side) give(o *order) error {
	b, err := json.Marshal(o)
	if err == nil {
		_, err = s.out.Write(append(b, '\n'))
	}
	if err != nil {
		return errPartnerGone
	}
	s.pending = true
	return nil
}

// report waits for the report of the order that was given last.
func (s *side) report(ctx context.Context) (*report, error) {
	select {
	case line, ok := <-s.lines:
		r := &report{}
		if !ok || json.Unmarshal(line, r) != nil {
			return nil, errPartnerGone
		}
		s.pending = false
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// do gives an order, and waits for its report. The error is of the side; what
// became of the order is in the report.
func (s *side) do(ctx context.Context, o order) (*report, error) {
	if err := s.give(&o); err != nil {
		return nil, err
	}
	return s.report(ctx)
}
