package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/doctor"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// examine runs the doctor and returns what it found, by check.
func (c *testCluster) examine(args ...string) (doctor.Examination, map[string]doctor.Finding) {
	c.t.Helper()
	out, err := c.try(append([]string{"doctor", "--json"}, args...)...)
	return c.examined(out, err)
}

// examineJoined examines a from two processes, the second of which gets b, and
// tells joined how it ended. While the first waits for the second, waits is
// called.
func (c *testCluster) examineJoined(joined chan<- error, a, b string, waits func(), flags ...string) (doctor.Examination, map[string]doctor.Finding) {
	c.t.Helper()
	first := c.cmd(append([]string{"doctor", "--json", "--listen=127.0.0.1:0", a}, flags...)...)
	says, err := first.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var out bytes.Buffer
	first.Stdout = &out
	if err := first.Start(); err != nil {
		c.t.Fatal(err)
	}
	// Longer than any --patience that is given here.
	late := time.AfterFunc(3*time.Minute, func() {
		c.t.Errorf("dmxfs doctor %s %s does not end", a, flags)
		_ = first.Process.Kill()
	})
	defer late.Stop()
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if _, command, ok := strings.Cut(lines.Text(), "dmxfs doctor --join "); ok {
			where, _, _ := strings.Cut(command, " ")
			waits()
			go func() {
				_, err := c.try(append([]string{"doctor", "--join", where, b}, flags...)...)
				joined <- err
			}()
		}
	}
	err = first.Wait()
	return c.examined(out.String(), err)
}

func (c *testCluster) examined(out string, err error) (doctor.Examination, map[string]doctor.Finding) {
	c.t.Helper()
	var j doctor.Examination
	if e := json.Unmarshal([]byte(out), &j); e != nil {
		c.t.Fatalf("%v: %v: %s", e, err, out)
	}
	if (err == nil) != j.Fit {
		c.t.Errorf("fit is %v, and the end: %v", j.Fit, err)
	}
	byCheck := map[string]doctor.Finding{}
	for _, f := range j.Findings {
		byCheck[f.Check] = f
	}
	return j, byCheck
}

// checks wants results of checks, given as CHECK=RESULT.
func (c *testCluster) checks(found map[string]doctor.Finding, want ...string) {
	c.t.Helper()
	for _, w := range want {
		check, result, _ := strings.Cut(w, "=")
		if f := found[check]; f.Result != result {
			c.t.Errorf("%s: %q, want %s: %s", check, f.Result, result, f.Text)
		}
	}
}

func TestDoctorOnALocalDirectory(t *testing.T) {
	t.Parallel()
	c := emptyCluster(t)
	src := filepath.Join(c.dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	j, found := c.examine(src, src)
	c.checks(found, "two sides=note", "data after reopen=ok", "data without reopen=ok", "attributes=ok", "listings=ok",
		"O_EXCL=ok", "link=ok", "rename=ok", "inode numbers=ok", "locks below=note")
	if !j.Fit || len(j.Options) != 0 || !strings.Contains(found["locks below"].Text, "flock keeps them apart and fcntl keeps them apart") {
		t.Errorf("%+v", j)
	}
	// Two hosts.
	joined := make(chan error, 1)
	j, found = c.examineJoined(joined, src, src, func() {})
	if err := <-joined; err != nil {
		t.Errorf("the other side: %v", err)
	}
	c.checks(found, "data after reopen=ok", "listings=ok", "link=ok", "inode numbers=ok")
	if !j.Fit || !strings.HasPrefix(j.Partner, "host ") {
		t.Errorf("%+v", j)
	}
	if left, err := os.ReadDir(src); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	// For people, by another name.
	link := filepath.Join(c.dir, "link")
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	out, err := c.try("doctor", link, link)
	if err != nil || !strings.Contains(out, "CHECK") || !strings.Contains(out, "is fit for dmxfs") {
		t.Errorf("%v\n%s", err, out)
	}
	// For support, the last verdict.
	var kept keptVerdict
	if b, err := os.ReadFile(filepath.Join(c.dir, "dmxfs", "doctor", config.MountName(src)+".json")); err != nil || json.Unmarshal(b, &kept) != nil || kept.Partner != link || !kept.Fit {
		t.Errorf("kept: %v %+v", err, kept)
	}
}

func TestDoctorSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := emptyCluster(t)
	a, b := filepath.Join(c.dir, "a"), filepath.Join(c.dir, "b")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(c.dir, "file"), "")
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{a, b, "--patience", "4s"}, exitcode.Failure, "are they the same storage?"},
		{[]string{a, "--patience", "2s"}, exitcode.Failure, "the other side has not come"},
		{[]string{a, "--listen", "nowhere"}, exitcode.Usage, "see --listen"},
		{[]string{"--join", "127.0.0.1:1/ABCDEFGHIJKLMNOPQRSTUVWXYZ", a}, exitcode.Failure, "no doctor is at 127.0.0.1:1"},
		{[]string{"--join", "127.0.0.1:1", a}, exitcode.Usage, "--join wants ADDRESS/CODE"},
		{[]string{"--join", "127.0.0.1:1/ABCDEFGHIJKLMNOPQRSTUVWXYZ", a, b}, exitcode.Usage, "--join takes one directory"},
		{[]string{filepath.Join(c.dir, "file")}, exitcode.Usage, "is not a directory"},
		{[]string{filepath.Join(c.dir, "missing")}, exitcode.Failure, "no such file"},
		{nil, exitcode.Usage, "arg"},
	} {
		_, err := c.try(append([]string{"doctor"}, x.args...)...)
		if code(err) != x.code || !strings.Contains(err.Error(), x.want) {
			t.Errorf("doctor %v: %v", x.args, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(a, ".dmxfs", "doctor"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := c.try("doctor", a, a); code(err) != exitcode.Busy || !strings.Contains(err.Error(), "another doctor") {
		t.Errorf("a second doctor: %v", err)
	}
}

// Over clients that cache, the doctor finds what they keep, and that they are
// fit; and a dmxfs mount it does not examine.
func TestDoctorOverSeparateClients(t *testing.T) {
	t.Parallel()
	needMounts(t)
	var side parts
	defer side.Wait()
	for _, kind := range []clientKind{
		{name: "cachefs", start: startCache},
		{name: "sshfs", start: func(t testing.TB, source, mountpoint string) {
			startSSHFSWith(t, source, mountpoint, ",dcache_timeout=2") // 20 s make a long test
		}},
	} {
		side.run(t, kind.name, func(t *testing.T) {
			c := newCluster(t, 0)
			var dirs []string
			for _, name := range []string{"1", "2"} {
				dir := filepath.Join(c.dir, "client-"+name)
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				kind.start(t, c.src, dir)
				dirs = append(dirs, dir)
			}
			j, found := c.examine(append(dirs, "--patience=3m")...)
			c.checks(found, "link=ok", "data under a lock=ok", "tidying up=", "O_EXCL=ok", "rename=ok", "data without reopen=note", "locks below=note")
			if !strings.Contains(found["locks below"].Text, "granted to both") {
				t.Errorf("locks: %s", found["locks below"].Text)
			}
			switch kind.name {
			case "cachefs":
				c.checks(found, "data after reopen=ok", "listings=note", "inode numbers=note")
			case "sshfs":
				c.checks(found, "inode numbers=ok", "listings=note")
			}
			if !j.Fit {
				t.Errorf("%+v", j)
			}
		})
	}
}

func TestDoctorOfAMount(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	if _, err := c.try("doctor", c.mounts[0].dir); code(err) != exitcode.Usage || !strings.Contains(err.Error(), "is a dmxfs mount") {
		t.Errorf("doctor of a mount: %v", err)
	}
}

// Over storage that hangs the doctor ends when --patience is over, and at a
// signal.
func TestDoctorEnds(t *testing.T) {
	t.Parallel()
	needMounts(t)
	c := emptyCluster(t)
	src := filepath.Join(c.dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	s := newHangingStorage(t, src, filepath.Join(c.dir, "storage"))

	// It hangs after the doctor has opened it.
	joined := make(chan error, 1)
	j, found := c.examineJoined(joined, s.dir, src, func() { s.hang(true) }, "--patience=5s")
	<-joined // whatever it says
	if f := found["files"]; j.Fit || f.Result != doctor.ResultBad || !strings.Contains(f.Text, "--patience") {
		t.Errorf("%+v", j)
	}
	// And all the time.
	if _, err := c.try("doctor", s.dir, s.dir, "--patience=2s"); code(err) != exitcode.Failure || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
	cmd := c.cmd("doctor", s.dir, s.dir, "--patience=10m")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the doctor looks at the storage", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
		return slices.ContainsFunc(threads, func(name string) bool { b, _ := os.ReadFile(name); return len(b) > 0 })
	})
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was interrupted, and says that all is well")
	}
}
