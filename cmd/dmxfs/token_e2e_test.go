package main

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

const tokenName = "user.dmxfs.token"

// token is what an actor reads through an open file.
func (st *stage) token(actor, fd string) uint64 {
	st.t.Helper()
	s := st.call("%s getxattr %s %s", actor, fd, tokenName)
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		st.t.Fatalf("%s reads the token of %s: %s", actor, fd, s)
	}
	return n
}

// Each of those who hold a lock after one another reads a greater token from
// the file that it has open, and the table of locks shows the same; also when
// in between all daemons have left and come back.
func TestTokensRise(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	write(t, c.src+"/f", "")
	last := map[string]uint64{}
	round := func(when string) {
		for _, tt := range []struct{ name, class, open, take, drop string }{
			{"flock", "flock", "rw", "flock x ex", "flock x un"},
			{"fcntl", "posix", "rw", "lk x setw w 10 20", "lk x set u 0 0"},
			{"ofd", "posix", "rw", "lk x ofdsetw w 10 20", "lk x ofdset u 0 0"},
			{"open", "open", "rw", "", "close x"},
		} {
			st := newActors(t, tt.name == "open", c.mounts...)
			for turn := range 3 {
				for i, m := range c.mounts {
					who := string(rune('a' + i))
					if turn == 0 || tt.name == "open" {
						st.want("ok", "%s open x f %s", who, tt.open)
					}
					if tt.take != "" {
						st.want("ENODATA", "%s getxattr x %s", who, tokenName)
						st.want("ok", "%s %s", who, tt.take)
					}
					got := st.token(who, "x")
					if got <= last[tt.name] {
						t.Errorf("%s: %s on %s: token %d after %d", when, tt.name, who, got, last[tt.name])
					}
					last[tt.name] = got
					shown := uint64(0)
					for _, l := range m.locks() {
						if l.Path == "f" && l.State == "held" && l.Class == tt.class {
							shown = l.Token
						}
					}
					if shown != got {
						t.Errorf("%s: %s: dmxfs locks shows token %d, the file %d", when, tt.name, shown, got)
					}
					st.want("ok", "%s %s", who, tt.drop)
				}
			}
			st.end()
		}
	}
	round("at first")
	for _, m := range c.mounts {
		c.run("unmount", m.dir)
	}
	for _, m := range c.mounts {
		m.mount()
	}
	c.awaitMembers(2)
	round("after all daemons have started again")
	for _, m := range c.mounts {
		s, err := m.status()
		if err != nil {
			t.Fatal(err)
		}
		pid := s.PID
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "another daemon serves the mount", func() bool {
			s, err := m.status()
			return err == nil && s.PID != pid && s.State == "live"
		})
	}
	c.awaitMembers(2)
	round("after all daemons were killed")
}

// Who holds no lock reads no token, and nobody writes one, or copies it.
func TestWhoReadsTheToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	write(t, c.src+"/f", "")
	st := newActors(t, false, c.mounts[0], c.mounts[0], c.mounts[1])
	for _, who := range []string{"a", "b", "c"} {
		st.want("ok", "%s open x f rw", who)
		st.want("ENODATA", "%s getxattr x %s", who, tokenName)
	}
	st.want("ok", "a flock x ex")
	mine := st.token("a", "x")
	for _, who := range []string{"b", "c"} {
		st.want("ENODATA", "%s getxattr x %s", who, tokenName)
	}
	// Whoever has inherited the lock reads it, also by another descriptor.
	st.want("ok", "a spawn k x")
	if err := st.join("k"); err != nil {
		t.Fatal(err)
	}
	st.want("ok", "k open y f r")
	for _, fd := range []string{"x", "y"} {
		if got := st.token("k", fd); got != mine {
			t.Errorf("the child reads %d by %s, want %d", got, fd, mine)
		}
	}
	st.want("EPERM", "a setxattr x %s 99999999999", tokenName)
	st.want("EPERM", "a removexattr x %s", tokenName)
	st.want("ok", "a setxattr x user.other text")
	st.want("user.other ", "a listxattr x")
	// The later of two locks counts, until it is given up. Those of two classes
	// have nothing to do with each other.
	for range 3 {
		st.want("ok", "c lk x setw w 0 1")
		st.want("ok", "c lk x set u 0 1")
	}
	st.want("ok", "a lk x set w 0 1")
	// A call that a signal of the runtime interrupts may have used one more.
	fourth := st.token("a", "x")
	if fourth < mine+3 {
		t.Errorf("the fourth fcntl lock has token %d, the first flock lock %d", fourth, mine)
	}
	st.want("ok", "a lk x set w 5 1")
	if got := st.token("a", "x"); got <= fourth {
		t.Errorf("the fifth fcntl lock has token %d, the fourth %d", got, fourth)
	}
	st.want("ok", "a lk x set u 0 0")
	if got := st.token("a", "x"); got != mine {
		t.Errorf("token %d, want the first one, %d", got, mine)
	}
	st.want("ok", "a flock x un")
	st.want("ENODATA", "a getxattr x %s", tokenName)
}

// What scripts do: a lock by flock(1) on a descriptor of the shell, or for a
// command.
func TestScriptsReadTheToken(t *testing.T) {
	t.Parallel()
	needTool(t, "flock")
	c := newCluster(t, 2)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read := "env " + helperEnv + "=token " + exe
	last := uint64(0)
	for _, m := range c.mounts {
		for _, script := range []string{
			"exec 9>f; flock 9; " + read + " 9",
			"flock f sh -c 'exec 9<f; " + read + " 9'",
		} {
			out, code := m.sh(script)
			n, err := strconv.ParseUint(out, 10, 64)
			if code != 0 || err != nil || n <= last {
				t.Errorf("%s: exit code %d, token %q after %d", script, code, out, last)
			}
			last = n
		}
	}
	if out, code := c.mounts[0].sh("exec 9>f; flock 9; flock -u 9; " + read + " 9"); code == 0 {
		t.Errorf("without a lock: %s", out)
	}
}
