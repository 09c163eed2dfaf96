package main

import (
	"testing"
)

// With --file-id=path a file is what it is called. Renames must not make two
// files of one while somebody has it locked.
func TestIdentityByPath(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--file-id=path")
	a, b := c.mounts[0], c.mounts[1]
	t.Run("the same name is the same file", func(t *testing.T) {
		write(t, c.src+"/same", "")
		st := newActors(t, false, a, b)
		st.want("ok", "a open x same rw")
		st.want("ok", "b open x same rw")
		st.want("ok", "a flock x ex")
		st.want("ok", "a lk x set w 0 1")
		st.want("EAGAIN", "b flock x ex,nb")
		st.want("EAGAIN", "b lk x set w 0 1")
	})
	t.Run("a file that nobody uses is renamed", func(t *testing.T) {
		write(t, c.src+"/free", "")
		st := newActors(t, false, a, b)
		st.want("ok", "b open y free r")
		st.want("ok", "b close y")
		st.want("ok", "a rename free free2")
		st.want("ok", "a open x free2 rw")
		st.want("ok", "b open x free2 rw")
		st.want("ok", "a flock x ex")
		st.want("EAGAIN", "b flock x ex,nb")
	})
	for _, tt := range []struct{ name, take, drop string }{
		{"flock", "flock x sh", "flock x un"},
		{"fcntl", "lk x set r 5 1", "lk x set u 0 0"},
		{"ofd", "lk x ofdset r 5 1", "lk x ofdset u 0 0"},
	} {
		t.Run("a file that is locked is not renamed: "+tt.name, func(t *testing.T) {
			f := "locked-" + tt.name
			write(t, c.src+"/"+f, "")
			st := newActors(t, false, a, b)
			st.want("ok", "a open x %s rw", f)
			st.want("ok", "a %s", tt.take)
			for _, who := range []string{"a", "b"} {
				st.want("EBUSY", "%s rename %s %s-2", who, f, f)
			}
			st.want("ok", "a %s", tt.drop)
			st.want("ok", "b rename %s %s-2", f, f)
			// Its new name is not what the other one has open.
			st.want("ESTALE", "a flock x ex")
			st.want("ESTALE", "a lk x set w 0 1")
			st.want("ok", "b open x %s-2 rw", f)
			st.want("ok", "b flock x ex,nb")
			st.want("ok", "b lk x set w 0 1")
		})
	}
	t.Run("a rename with open locks", func(t *testing.T) { renamesWithOpenLocks(t, c, a, b) })
	t.Run("what else is renamed or removed", func(t *testing.T) { renamesOfOthers(t, c, a, b) })
}

func renamesWithOpenLocks(t *testing.T, c *testCluster, a, b *testMount) {
	t.Run("open locks of this host move with a rename", func(t *testing.T) {
		write(t, c.src+"/open", "")
		st := newActors(t, true, a, b)
		st.want("ok", "a open x open rw")
		st.want("ok", "a pwrite x 0 one")
		st.want("EBUSY", "b rename open open2")
		st.want("ok", "a rename open open2")
		st.want("ok", "a pwrite x 0 two")
		p := st.begin("b open x open2 rw").waits()
		st.want("ok", "a close x")
		if out := p.outcome(); out != "ok" {
			t.Fatalf("open by the new name: %s", out)
		}
		st.want(`"two"`, "b pread x 0 10")
	})
	t.Run("a temporary file is put in the place of another", func(t *testing.T) {
		write(t, c.src+"/target", "old")
		st := newActors(t, true, a, b)
		st.want("ok", "b open x target r")
		st.want(`"old"`, "b pread x 0 10")
		st.want("ok", "a open x target.new rw,creat")
		st.want("ok", "a pwrite x 0 new")
		st.want("ok", "a rename target.new target")
		st.want(`"old"`, "b pread x 0 10")
		st.want("ok", "b close x")
		st.want(`"new"`, "a pread x 0 10")
		st.want("ok", "a close x")
		st.want("ok", "b open x target r")
		st.want(`"new"`, "b pread x 0 10")
	})
}

// renamesOfOthers are of what has other names, or files below it, and of what is waited for.
func renamesOfOthers(t *testing.T, c *testCluster, a, b *testMount) {
	t.Run("another name of a file that is renamed", func(t *testing.T) {
		write(t, c.src+"/name1", "")
		st := newActors(t, false, a, b)
		st.want("ok", "b open x name1 rw")
		st.want("ok", "b flock x ex")
		st.want("ok", "a link name1 name2")
		st.want("ok", "a open y name2 rw")
		st.want("EBUSY", "a rename name1 name3")
		st.want("ok", "a flock y ex,nb") // another file
		st.want("ok", "b flock x un")
		st.want("ok", "a rename name1 name3")
		st.want("ESTALE", "b flock x ex")
		st.want("ok", "a lk y set w 0 1")
	})
	t.Run("directories", func(t *testing.T) {
		st := newActors(t, false, a, b)
		st.want("ok", "a mkdir d")
		st.want("ok", "a open x d/f rw,creat")
		st.want("EBUSY", "a rename d e")
		st.want("ok", "a close x")
		await(t, "the close is known", func() bool { return st.call("a rename d e") == "ok" })
		st.want("ok", "a open x e/f rw")
		st.want("ok", "b open x e/f rw")
		st.want("ok", "a flock x ex")
		st.want("EAGAIN", "b flock x ex,nb")
		// The other host has looked up nothing below this one.
		st.want("ok", "a mkdir d2")
		st.want("ok", "a open y d2/f rw,creat")
		st.want("ok", "a lk y set r 0 1")
		st.want("EBUSY", "b rename d2 e2")
		st.want("ok", "a lk y set u 0 1")
		st.want("ok", "b rename d2 e2")
		st.want("ESTALE", "a lk y set r 0 1")
	})
	t.Run("a file that is removed while it is waited for", func(t *testing.T) {
		write(t, c.src+"/removed", "")
		st := newActors(t, false, a, b)
		st.want("ok", "a open x removed rw")
		st.want("ok", "b open x removed rw")
		st.want("ok", "a flock x ex")
		p := st.begin("b.t flock x ex").waits()
		st.want("ok", "a unlink removed")
		st.want("ok", "a flock x un")
		if out := p.outcome(); out != "ok" {
			t.Errorf("flock of a file without a name: %s", out)
		}
		st.want("EAGAIN", "a flock x ex,nb")
	})
}

// A program cannot use up the memory for locks of all.
func TestLimitOfLocksOfAProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "--max-locks", "100")
	write(t, c.src+"/f", "")
	st := newActors(t, false, c.mounts[0], c.mounts[0], c.mounts[1])
	for _, who := range []string{"a", "b", "c"} {
		st.want("ok", "%s open x f rw", who)
	}
	st.want("ENOLCK", "a many x r 101")
	st.want("ENOLCK", "a flock x sh")
	st.want("ok", "b many x r 100")
	st.want("ok", "c many x r 100")
	st.want("ok", "a lk x set u 0 10")
	st.want("ok", "a flock x sh")
}
