package doctor

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// attacked is a shared directory with a doctor's directory of the session "s",
// beside a directory that nobody must touch.
type attacked struct {
	t              *testing.T
	source, victim string
}

func newAttacked(t *testing.T) *attacked {
	dir := t.TempDir()
	a := &attacked{t, filepath.Join(dir, "source"), filepath.Join(dir, "victim")}
	for _, d := range []string{a.source, a.victim} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(a.victim, "secret"), "the secret")
	return a
}

// untouched wants the victim as it was.
func (a *attacked) untouched() {
	a.t.Helper()
	all, err := os.ReadDir(a.victim)
	secret, unread := os.ReadFile(filepath.Join(a.victim, "secret"))
	if err != nil || unread != nil || len(all) != 1 || string(secret) != "the secret" {
		a.t.Errorf("the victim was touched: %v, %q, %v, %v", all, secret, err, unread)
	}
}

func (a *attacked) open() int {
	a.t.Helper()
	fd, err := unix.Open(a.source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (a *attacked) path(names ...string) string {
	return filepath.Join(append([]string{a.source, ".dmxfs"}, names...)...)
}

// Whoever can write to the storage has put something else where the doctor
// works: it goes nowhere.
func TestDoctorFollowsNobody(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*attacked) error{
		".dmxfs is a link": func(a *attacked) error {
			return errors.Join(os.Mkdir(filepath.Join(a.victim, "doctor"), 0o700), os.Symlink(a.victim, a.path()))
		},
		"doctor is a link": func(a *attacked) error {
			return errors.Join(os.Mkdir(a.path(), 0o700), os.Symlink(a.victim, a.path("doctor")))
		},
		"doctor is a file": func(a *attacked) error {
			return errors.Join(os.Mkdir(a.path(), 0o700), os.WriteFile(a.path("doctor"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttacked(t)
			if err := prepare(a); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(filepath.Join(a.victim, "doctor")) // only its name was wanted
			if d, err := findWorkDir(a.open(), "s"); err == nil {
				t.Errorf("the second side took it: %+v", d)
			}
			if d, err := makeWorkDir(a.open(), "s"); err == nil {
				t.Errorf("the first side took it: %+v", d)
			}
			a.untouched()
		})
	}
}

// Directories of another user are not used, nor are those that another user
// has put in place of ours.
func TestDoctorTrustsNoOtherOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	for _, foreign := range []string{"", "doctor"} {
		a := newAttacked(t)
		if err := os.MkdirAll(a.path("doctor"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, a.path("doctor", sessionFile), "s")
		if err := os.Chown(a.path(foreign), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		_, err := findWorkDir(a.open(), "s")
		if exitcode.Of(err) != exitcode.Refused || !strings.Contains(err.Error(), "belongs to user 65534") {
			t.Errorf("%q of another user: %v", foreign, err)
		}
		if left, err := os.ReadDir(a.path("doctor")); err != nil || len(left) != 1 {
			t.Errorf("left behind: %v %v", left, err)
		}
		if foreign == "" {
			if err := os.RemoveAll(a.path("doctor")); err != nil {
				t.Fatal(err)
			}
			if _, err := makeWorkDir(a.open(), "s"); exitcode.Of(err) != exitcode.Refused {
				t.Errorf("the first side, in .dmxfs of another user: %v", err)
			}
			if _, err := os.Lstat(a.path("doctor")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left behind: %v", err)
			}
		}
	}
}

// Orders, wherever they come from, reach only the doctor's own files.
func TestDoctorsOrdersStayInside(t *testing.T) {
	t.Parallel()
	a := newAttacked(t)
	h := &hands{fd: a.open(), kept: map[string]*os.File{}}
	if err := h.do(&order{Op: "make", Data: "s"}).err(); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(a.victim, "secret")
	for name, how := range map[string]func(string) error{
		"symbolic":  func(p string) error { return os.Symlink(secret, p) },
		"dangling":  func(p string) error { return os.Symlink(filepath.Join(a.victim, "new"), p) },
		"hard":      func(p string) error { return os.Link(secret, p) },
		"fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Symlink(a.victim, p) },
	} {
		if err := how(a.path("doctor", name)); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		write(t, a.path("doctor", "foreign"), "the secret")
		if err := os.Chown(a.path("doctor", "foreign"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"symbolic", "dangling", "hard", "fifo", "directory", "directory/secret", "directory/new", "foreign",
		"../../../victim/secret", "../../../victim/new", "..", ".", "", "../session", secret, filepath.Join(a.victim, "new")}
	for _, name := range names {
		for _, op := range []string{"write", "overwrite", "keep"} {
			if name == "foreign" && os.Geteuid() != 0 {
				continue
			}
			if h.do(&order{Op: op, Name: name, Data: "pwned"}).err() == nil {
				t.Errorf("%s %q was done", op, name)
			}
		}
		if name != "hard" { // that file belongs to us, and is in our directory
			if r := h.do(&order{Op: "read", Name: name}); r.err() == nil || r.Data != "" {
				t.Errorf("read %q: %q %v", name, r.Data, r.err())
			}
		}
		h.do(&order{Op: "race-link", Name: name, To: name, Count: 1})
		h.do(&order{Op: "race-excl", Name: name, Count: 1})
		if strings.ContainsAny(name, "./") {
			for _, o := range []order{
				{Op: "rename", Name: name, To: "session"}, {Op: "rename", Name: "session", To: name},
				{Op: "link", Name: name, To: "linked"}, {Op: "link", Name: "session", To: name},
				{Op: "remove", Name: name}, {Op: "stat", Name: name},
			} {
				if h.do(&o).err() == nil {
					t.Errorf("%+v was done", o)
				}
			}
		}
		a.untouched()
	}
	if h.do(&order{Op: "keep", Name: "twice"}).err() != nil || h.do(&order{Op: "chmod", Name: "twice"}).err() == nil {
		t.Error("an order that is known, and one that is not")
	}
	if err := h.do(&order{Op: "tidy"}).err(); err != nil {
		t.Errorf("tidy up: %v", err)
	}
	a.untouched()
	if left, err := os.ReadDir(a.source); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// Nobody without the code speaks with a doctor, and a doctor not with somebody
// who has it not.
func TestDoctorsSpeakByCode(t *testing.T) {
	t.Parallel()
	first, err := tlsConfig("a code", firstSide, secondSide)
	if err != nil {
		t.Fatal(err)
	}
	config := func(code, side, other string) *tls.Config {
		c, err := tlsConfig(code, side, other)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	bare := config("a code", secondSide, firstSide)
	bare.Certificates = nil
	unchecked := config("b code", secondSide, firstSide)
	unchecked.VerifyConnection = nil
	for _, x := range []struct {
		name           string
		conf           *tls.Config
		server, client bool // is content
	}{
		{"the code", config("a code", secondSide, firstSide), true, true},
		{"another code", config("b code", secondSide, firstSide), false, false},
		{"another code, and does not care", unchecked, false, true},
		{"no certificate", bare, false, true},
		{"the first side's own key", config("a code", firstSide, secondSide), false, false},
	} {
		a, b := net.Pipe()
		said := make(chan error, 1)
		go func() {
			c := tls.Server(a, first)
			err := c.Handshake()
			if err == nil {
				_, err = io.WriteString(c, "order\n")
			}
			a.Close()
			said <- err
		}()
		c := tls.Client(b, x.conf)
		err := c.Handshake()
		got, _ := io.ReadAll(c)
		b.Close()
		if serverErr := <-said; (serverErr == nil) != x.server || (err == nil) != x.client || (len(got) > 0) != (x.server && x.client) {
			t.Errorf("%s: the doctor says %v, the other %v, and got %q", x.name, serverErr, err, got)
		}
	}
	if a, b := rand.Text(), rand.Text(); a == b || len(a) < 26 {
		t.Error("codes are too short")
	}
}
