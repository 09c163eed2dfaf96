package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The doctor examines storage from two sides: this process, and a partner with
// another client of the same storage. The partner does what it is told, and
// says what came of it.

// doctorOrder is something to do in the doctor's directory.
type doctorOrder struct {
	Session string `json:"session"`
	Seq     int    `json:"seq"`
	Op      string `json:"op"`
	Name    string `json:"name,omitempty"`
	To      string `json:"to,omitempty"`
	Data    string `json:"data,omitempty"`
	Count   int    `json:"count,omitempty"`
	End     bool   `json:"end"` // of the message: it is whole
}

// doctorReport is what came of an order.
type doctorReport struct {
	Session string   `json:"session"`
	Seq     int      `json:"seq"`
	Errno   int      `json:"errno,omitempty"`
	Error   string   `json:"error,omitempty"`
	Data    string   `json:"data,omitempty"`
	Names   []string `json:"names,omitempty"`
	Size    int64    `json:"size,omitempty"`
	Ino     uint64   `json:"ino,omitempty"`
	Nlink   uint64   `json:"nlink,omitempty"`
	Count   int      `json:"count,omitempty"`
	Time    int64    `json:"time,omitempty"` // ns since 1970, of the partner's clock
	Host    string   `json:"host,omitempty"`
	End     bool     `json:"end"`
}

func (r doctorReport) err() error {
	switch {
	case r.Errno != 0:
		return unix.Errno(r.Errno)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// hands do orders in a directory. What is opened stays open under its name.
type hands struct {
	dir  string
	open map[string]*os.File
}

func newHands(dir string) *hands { return &hands{dir, map[string]*os.File{}} }

func (h *hands) close() {
	for _, f := range h.open {
		f.Close()
	}
}

func (h *hands) path(name string) string { return filepath.Join(h.dir, name) }

// do carries out an order.
func (h *hands) do(o doctorOrder) doctorReport {
	r := doctorReport{Session: o.Session, Seq: o.Seq, End: true}
	err := h.try(o, &r)
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		r.Errno = int(errno)
	} else if err != nil {
		r.Error = err.Error()
	}
	return r
}

func (h *hands) try(o doctorOrder, r *doctorReport) error {
	switch o.Op {
	case "hello":
		r.Host, _ = os.Hostname()
		r.Time = time.Now().UnixNano()
		return nil
	case "write": // and fsync, and close
		f, err := os.OpenFile(h.path(o.Name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		return writeSynced(f, o.Data)
	case "overwrite":
		f, err := os.OpenFile(h.path(o.Name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return writeSynced(f, o.Data)
	case "read": // opens anew
		b, err := os.ReadFile(h.path(o.Name))
		r.Data = string(b)
		return err
	case "keep":
		f, err := os.OpenFile(h.path(o.Name), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			h.open[o.Name] = f
		}
		return err
	case "read-kept":
		b := make([]byte, 100)
		n, err := h.open[o.Name].ReadAt(b, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		r.Data = string(b[:n])
		return err
	case "stat":
		var st unix.Stat_t
		err := unix.Stat(h.path(o.Name), &st)
		r.Size, r.Ino, r.Nlink, r.Time = st.Size, st.Ino, uint64(st.Nlink), st.Mtim.Nano()
		return err
	case "list":
		all, err := os.ReadDir(h.dir)
		for _, e := range all {
			if strings.HasPrefix(e.Name(), o.Name) {
				r.Names = append(r.Names, e.Name())
			}
		}
		return err
	case "remove":
		return os.Remove(h.path(o.Name))
	case "rename":
		return os.Rename(h.path(o.Name), h.path(o.To))
	case "link":
		return unix.Link(h.path(o.Name), h.path(o.To))
	case "flock":
		return unix.Flock(int(h.open[o.Name].Fd()), unix.LOCK_EX|unix.LOCK_NB)
	case "fcntl":
		return unix.FcntlFlock(h.open[o.Name].Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	case "race-excl", "race-link":
		return h.race(o, r)
	case "read-often": // counts the times that it is neither the old nor the new
		for range o.Count {
			b, err := os.ReadFile(h.path(o.Name))
			if err != nil || !strings.HasPrefix(string(b), "version ") || len(b) != len("version 000") {
				r.Count++
				r.Data = fmt.Sprintf("%q, %v", b, err)
			}
		}
		return nil
	}
	return fmt.Errorf("the partner does not know %q: use the same version of dmxfs on both", o.Op)
}

// race tries to be the first to make o.Count names, and tells which it made.
// Not all storage says EEXIST: what fails, and is there, somebody else has made.
func (h *hands) race(o doctorOrder, r *doctorReport) error {
	if o.Op == "race-link" {
		if err := os.WriteFile(h.path(o.To), []byte(o.To), 0o600); err != nil {
			return err
		}
	}
	for i := range o.Count {
		name := fmt.Sprintf("%s-%d", o.Name, i)
		var err error
		if o.Op == "race-link" {
			err = unix.Link(h.path(o.To), h.path(name))
		} else {
			var f *os.File
			if f, err = os.OpenFile(h.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				f.Close()
			}
		}
		switch {
		case err == nil:
			r.Names = append(r.Names, name)
		case errors.Is(err, os.ErrExist):
		default:
			if _, e := os.Lstat(h.path(name)); e != nil {
				return err
			}
			r.Data = err.Error()
		}
	}
	return nil
}

func writeSynced(f *os.File, data string) error {
	_, err := f.WriteAt([]byte(data), 0)
	if e := f.Sync(); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// partner is the other side, as the conductor has it.
type partner interface {
	// ask gives an order; the report comes on the channel, which is closed
	// without one if the partner is gone.
	ask(doctorOrder) <-chan doctorReport
	close()
}

// processPartner is a partner on this host: another process.
type processPartner struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPartner(ctx context.Context, dir string) (*processPartner, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", doctorHandsCommand, dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the partner: %w", err)
	}
	return &processPartner{cmd, in, bufio.NewReader(out)}, nil
}

func (p *processPartner) ask(o doctorOrder) <-chan doctorReport {
	c := make(chan doctorReport, 1)
	go func() {
		defer close(c)
		b, _ := json.Marshal(o)
		if _, err := p.in.Write(append(b, '\n')); err != nil {
			return
		}
		line, err := p.out.ReadBytes('\n')
		var r doctorReport
		if err == nil && json.Unmarshal(line, &r) == nil {
			c <- r
		}
	}()
	return c
}

func (p *processPartner) close() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// serveHands is the partner's side of processPartner.
func serveHands(dir string, in io.Reader, out io.Writer) error {
	h := newHands(dir)
	defer h.close()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o doctorOrder
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		b, err := json.Marshal(h.do(o))
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// mailPartner is a partner on another host. The two write to each other in two
// files on the storage itself that are overwritten each time: all that is
// needed is that a file that is opened anew shows what was written last.
type mailPartner struct {
	ctx      context.Context
	dir      string
	session  string
	seq      int
	patience time.Duration
}

const (
	orderFile  = "order"
	reportFile = "report"
	mailEvery  = 50 * time.Millisecond
)

// mail writes a message so that its reader knows whether it is whole.
func mail(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return writeSynced(f, string(b)+"\n")
}

func fetch(path string, v any) bool {
	b, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(b, v) == nil
}

func (p *mailPartner) ask(o doctorOrder) <-chan doctorReport {
	c := make(chan doctorReport, 1)
	p.seq++
	o.Session, o.Seq, o.End = p.session, p.seq, true
	go func() {
		defer close(c)
		if mail(filepath.Join(p.dir, orderFile), o) != nil {
			return
		}
		tick := time.NewTicker(mailEvery)
		defer tick.Stop()
		for end := time.Now().Add(p.patience); time.Now().Before(end); {
			var r doctorReport
			if fetch(filepath.Join(p.dir, reportFile), &r) && r.Session == o.Session && r.Seq == o.Seq && r.End {
				c <- r
				return
			}
			select {
			case <-tick.C:
			case <-p.ctx.Done():
				return
			}
		}
	}()
	return c
}

func (p *mailPartner) close() {
	_ = mail(filepath.Join(p.dir, orderFile), doctorOrder{Session: p.session, Seq: p.seq + 1, Op: "bye", End: true})
}

// joinDoctor is the partner's side of mailPartner.
func joinDoctor(ctx context.Context, dir string, patience time.Duration, log io.Writer) error {
	h := newHands(dir)
	defer h.close()
	tick := time.NewTicker(mailEvery)
	defer tick.Stop()
	seen := map[string]int{}
	heard := time.Now()
	for {
		var o doctorOrder
		if fetch(filepath.Join(dir, orderFile), &o) && o.End && o.Seq > seen[o.Session] {
			if len(seen) == 0 {
				fmt.Fprintln(log, "dmxfs: found the doctor; it tells what it finds")
			}
			if heard, seen[o.Session] = time.Now(), o.Seq; o.Op == "bye" {
				return nil
			}
			if err := mail(filepath.Join(dir, reportFile), h.do(o)); err != nil {
				return fmt.Errorf("answer the doctor: %w", err)
			}
			continue
		}
		if _, err := os.Stat(dir); len(seen) > 0 && errors.Is(err, fs.ErrNotExist) {
			return nil // it has finished, and tidied up
		}
		if time.Since(heard) > patience {
			return fmt.Errorf("nothing was heard of a doctor for %v: run dmxfs doctor SOURCE on the other host; if it runs there, the two directories are not the same, or what is written there is not seen here", patience)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// both is what is in a and in b.
func both(a, b []string) (out []string) {
	for _, n := range a {
		if slices.Contains(b, n) {
			out = append(out, n)
		}
	}
	return out
}
