package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pastTheEnd changes the last page of each of N files through a mapping, and then, when it
// is told to, makes them longer: past-the-end N. It says whether all is there.
func pastTheEnd(args []string) error {
	var n int
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return err
	}
	const size, more = 9000, 2000
	var files []*os.File
	for i := range n {
		f, err := os.OpenFile(fmt.Sprint("past-", i), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		files = append(files, f)
		if _, err := f.Write(bytes.Repeat([]byte("a"), size)); err != nil {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		copy(m[size-10:], "changed")
		// The next write(2) does not ask first whether the file has capabilities.
		if _, err := f.WriteAt([]byte("a"), 0); err != nil {
			return err
		}
	}
	fmt.Println("changed")
	if _, err := fmt.Scanln(new(string)); err != nil {
		return err
	}
	done := make(chan error)
	for _, f := range files {
		go func() {
			_, err := f.WriteAt(bytes.Repeat([]byte("b"), more), size)
			done <- err
		}()
	}
	var failed error
	for range files {
		failed = errors.Join(failed, <-done)
	}
	want := append(bytes.Repeat([]byte("a"), size), bytes.Repeat([]byte("b"), more)...)
	copy(want[size-10:], "changed")
	for _, f := range files {
		b, err := os.ReadFile(f.Name())
		failed = errors.Join(failed, err, differ(b, want, 0))
	}
	if failed != nil {
		fmt.Println(strings.ReplaceAll(failed.Error(), "\n", "; "))
		return nil
	}
	fmt.Println("ok")
	return nil
}

// A program makes a file longer while there is no daemon, and has changed the last page
// through a mapping before. The next daemon has the kernel write that out, which puts zeros
// behind the end that the kernel knows: not before it has taken what is to be written.
func TestTakeoverBesideAWritePastTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	for range 3 {
		p := m.converse("past-the-end", "20")
		if got := p.answer(); got != "changed" {
			t.Fatal(got)
		}
		m.mayTakeOver()
		stop := m.cutsOff()
		old := m.daemon()
		m.signal(unix.SIGSTOP)
		p.tell("go")
		waits := func() (n int) {
			tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.p.cmd.Process.Pid))
			for _, x := range tasks {
				call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", p.p.cmd.Process.Pid, x.Name()))
				if bytes.HasPrefix(call, []byte(fmt.Sprint(unix.SYS_PWRITE64, " "))) {
					n++
				}
			}
			return n
		}
		await(t, "all write", func() bool { return waits() == 20 })
		m.signal(unix.SIGKILL)
		m.awaitNew(old)
		if got := p.answer(); got != "ok" {
			t.Error(got)
		}
		stop()
		m.livesOn()
	}
}
