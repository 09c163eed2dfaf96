package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

// The locks hand over the data also when what lies below has caches of its
// own: here every host has its own client of the storage. The tests of this
// file are those of peers that fail them, or lose updates.

func TestCountersOverSeparateClients(t *testing.T) {
	t.Parallel()
	for _, kind := range kindsOfClients() {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2)
			runCounters(t, c, 2, long.Or(3, times(100)), !long.Tests())
		})
	}
}

// runCounters lets procs programs on each mount count, n times each, in every
// variant, or in the half of them that has all pairs of choices.
func runCounters(t *testing.T, c *testCluster, procs, n int, half bool) {
	for i, kind := range []string{"flock", "fcntl", "ofd"} {
		for j, how := range []string{"kept", "anew"} {
			for k, where := range []string{"self", "lockfile"} {
				if half && (i+j+k)%2 > 0 {
					continue
				}
				part(t, kind+" "+how+" "+where, func(t *testing.T) {
					write(t, c.mounts[0].path("data"), "0")
					var ps []*proc
					for _, m := range c.mounts {
						for range procs {
							ps = append(ps, m.helper("counter", kind, how, where, fmt.Sprint(n)))
						}
					}
					for _, p := range ps {
						if out, code := p.wait(); code != 0 {
							t.Errorf("exit code %d: %s", code, out)
						}
					}
					want := fmt.Sprint(len(ps) * n)
					for _, m := range c.mounts {
						if got := read(t, m.path("data")); got != want {
							t.Errorf("%s says %s, want %s", m.dir, got, want)
						}
					}
				})
			}
		}
	}
}

// Every change under a lock is seen by the other host under its next lock: in
// the data, in the size and the other attributes, and in what is mapped.
func TestChangesAreSeenOverSeparateClients(t *testing.T) {
	t.Parallel()
	for _, kind := range kindsOfClients() {
		t.Run(kind.name, func(t *testing.T) {
			c := newClientCluster(t, kind, 2)
			a, b := c.mounts[0], c.mounts[1]
			for _, lock := range []string{"flock self kept", "flock lockfile kept", "flock self anew", "flock lockfile anew",
				"fcntl self kept", "fcntl lockfile kept", "fcntl lockfile anew", "ofd self kept", "ofd lockfile anew", "open self anew"} {
				t.Run(lock, func(t *testing.T) {
					write(t, a.path("data"), "")
					args := append(strings.Fields(lock), strconv.Itoa(long.Or(3, times(100))), a.dir, b.dir)
					if out, code := a.helper("rounds", args...).wait(); code != 0 {
						t.Errorf("exit code %d: %s", code, out)
					}
				})
			}
			t.Run("rename", func(t *testing.T) {
				if out, code := a.helper("replace", "flock", strconv.Itoa(long.Or(3, times(100))), a.dir, b.dir).wait(); code != 0 {
					t.Errorf("exit code %d: %s", code, out)
				}
			})
		})
	}
}

// What one host changes under a lock is seen by the other one while both write other
// files: sshfs takes over no answer of the server that such a write has met.
func TestWritesBesideOverSSHFS(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, clientKind{name: "sshfs", start: startSSHFS, args: []string{"--listing-age=0s"}}, 2)
	runWritesBeside(t, c, long.Or(1, times(25)))
}

// runWritesBeside lets two mounts change a file n times in turn, for locks of every
// kind, while a program on each of them writes a file of its own.
func runWritesBeside(t *testing.T, c *testCluster, n int) {
	a, b := c.mounts[0], c.mounts[1]
	for i, m := range c.mounts {
		p := m.helper("overwrite", fmt.Sprint("beside-", i), long.Or("1ms", "0s"))
		defer func() {
			p.signal(unix.SIGKILL)
			p.wait()
		}()
	}
	for _, lock := range []string{"flock self kept", "flock lockfile kept", "fcntl lockfile anew", "ofd lockfile kept", "open self anew"} {
		part(t, lock, func(t *testing.T) {
			write(t, a.path("data"), "")
			args := append(strings.Fields(lock), strconv.Itoa(n), a.dir, b.dir)
			if out, code := a.helper("rounds", args...).wait(); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
		})
	}
}

func TestSQLiteOverSeparateClients(t *testing.T) {
	t.Parallel()
	needTool(t, "sqlite3")
	for _, kind := range kindsOfClients() {
		t.Run(kind.name, func(t *testing.T) {
			runSQLite(t, newClientCluster(t, kind, 2), times(100))
		})
	}
}

// runSQLite lets two programs on each of two mounts insert n rows each.
func runSQLite(t *testing.T, c *testCluster, n int) {
	if out, code := c.mounts[0].sh("sqlite3 t.db 'create table t(x)'"); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	insert := fmt.Sprintf("for i in $(seq %d); do sqlite3 -cmd '.timeout 60000' t.db \"insert into t values($i)\" || exit 1; done", n)
	var ps []*proc
	for _, m := range c.mounts {
		ps = append(ps, m.start(insert), m.start(insert))
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 || strings.TrimSpace(out) != "wal" && out != "" {
			t.Errorf("%d %s", code, out)
		}
	}
	for _, m := range c.mounts {
		if out, code := m.sh("sqlite3 t.db 'select count(*) from t; pragma integrity_check'"); code != 0 || out != fmt.Sprintf("%d\nok\n", 4*n) {
			t.Errorf("on %s: %d %q", m.dir, code, out)
		}
	}
}

// While nobody else writes, nothing is read again from the storage: counted by
// its client, for locks of every kind, also when the other host reads.
func TestNothingIsReadAgainWithoutAWriter(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, clientKinds[0], 2)
	a, b := c.mounts[0], c.mounts[1]
	write(t, a.path("data"), strings.Repeat("0123456789", 2000))
	for _, lock := range []string{"flock self kept", "flock lockfile kept", "fcntl self kept", "ofd self kept", "open self anew"} {
		t.Run(lock, func(t *testing.T) {
			readers := func() {
				for _, m := range []*testMount{a, b} {
					if out, code := m.helper("readers", append(strings.Fields(lock), "50", m.dir)...).wait(); code != 0 {
						t.Fatalf("exit code %d: %s", code, out)
					}
				}
			}
			readers()
			before := [2]int{a.clientCounter(cacheReads), b.clientCounter(cacheReads)}
			readers()
			after := [2]int{a.clientCounter(cacheReads), b.clientCounter(cacheReads)}
			// A program that begins may open the file without a lock that
			// could tell that it is unchanged: then it is read once, in a few requests.
			// On a busy machine it has been read once more meanwhile, in 8 in all.
			for i := range after {
				if n := after[i] - before[i]; n > 12 {
					t.Errorf("host %d: %d requests for data reached the storage's client in 50 rounds", i, n)
				}
			}
		})
	}
}
