package mountinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	all := Parse(`22 1 259:2 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw,errors=remount-ro
no mount
36 22 0:50 / /a\040b\134c rw - fuse.sshfs u@h:\011x rw,user_id=0,flag
37 22 0:51 / /empty rw - fuse  rw
38 22 0:52 / /a\040b\134c rw - tmpfs none
`)
	want := []Mount{
		{ID: 22, Dev: unix.Mkdev(259, 2), Point: "/", Type: "ext4", Source: "/dev/root", Options: map[string]string{"rw": "", "errors": "remount-ro"}},
		{ID: 36, Dev: unix.Mkdev(0, 50), Point: `/a b\c`, Type: "fuse.sshfs", Source: "u@h:\tx", Options: map[string]string{"rw": "", "user_id": "0", "flag": ""}},
		{ID: 37, Dev: unix.Mkdev(0, 51), Point: "/empty", Type: "fuse", Options: map[string]string{"rw": ""}},
		{ID: 38, Dev: unix.Mkdev(0, 52), Point: `/a b\c`, Type: "tmpfs", Source: "none", Options: map[string]string{}},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%+v\nwant %+v", all, want)
	}
	if m, ok := At(all, `/a b\c`); !ok || m.ID != 38 {
		t.Errorf("on top: %+v %v", m, ok)
	}
	if m, ok := At(all, "/a"); ok {
		t.Errorf("at no mount point: %+v", m)
	}
	for path, id := range map[string]int{"/": 22, "/a": 22, "/empty": 37, "/empty/x/y": 37, "/emptyx": 22, `/a b\c/d`: 38} {
		if m, ok := Holding(all, path); !ok || m.ID != id {
			t.Errorf("%s is on %+v %v, want %d", path, m, ok, id)
		}
	}
	if m, ok := Holding(all[1:], "/a"); ok {
		t.Errorf("on no mount: %+v", m)
	}
	if m := all[1]; !m.Has("flag") || m.Has("fla") {
		t.Errorf("options: %+v", m)
	}
}

func TestLinesThatAreNone(t *testing.T) {
	for _, bad := range []string{
		"", "36 35", "36 35 98 / /x rw - ext4 d rw", "36 35 a:b / /x rw - ext4 d rw", "36 35 1:b / /x rw - ext4 d rw",
		"x 35 1:2 / /x rw - ext4 d rw", "36 35 1:2 / /x rw", "36 35 1:2 / /x rw - ext4", "36 35 1:2 / - ext4 d rw",
	} {
		if m, ok := ParseLine(bad); ok {
			t.Errorf("accepted: %q: %+v", bad, m)
		}
	}
}

func TestUnescape(t *testing.T) {
	for escaped, want := range map[string]string{
		`a\040b\134c\04`: `a b\c\04`,
		`\1234`:          "S4",
		`\400\08x\`:      `\400\08x\`, // no characters in octal
	} {
		if got := unescape(escaped); got != want {
			t.Errorf("%s: %q, want %q", escaped, got, want)
		}
	}
}

// The kernel's own list has the root directory, with the device that stat(2) tells.
func TestRead(t *testing.T) {
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc", &st); err != nil {
		t.Fatal(err)
	}
	if m, ok := At(all, "/proc"); !ok || m.Type != "proc" || m.Dev != uint64(st.Dev) {
		t.Errorf("/proc: %+v %v, want device %d", m, ok, st.Dev)
	}
	b, err := os.ReadFile(Path) // of one moment
	if err != nil {
		t.Fatal(err)
	}
	if all := Parse(string(b)); len(all) != strings.Count(string(b), "\n") {
		t.Errorf("%d lines were understood of\n%s", len(all), b)
	}
}

// Mount points with the odd characters that file names may have. They are made
// as the kernel makes them.
func TestMountPointsAsTheKernelWritesThem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	point := filepath.Join(t.TempDir(), "a b\tc\nd\\e#f\r\v\u00a0\u0085\xff - x")
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("a source - #1", point, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := At(all, point); !ok || m.Type != "tmpfs" || m.Source != "a source - #1" || m.Options["size"] != "64k" {
		t.Errorf("%q: %+v %v", point, m, ok)
	}
}

// escape writes a field as the kernel does.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(" \t\n\\#", s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// What the kernel writes of a mount is read as it is, whatever is in its names.
func FuzzMount(f *testing.F) {
	f.Add(36, uint32(259), uint32(2), `a b\c`, "fuse.sshfs", "u@h:", "rw")
	f.Add(0, uint32(0), uint32(1<<20), "#\t\r\u0085\xff", "fuse", "", "")
	f.Add(1, uint32(1), uint32(1), " - ", " - ", " - ", " - ")
	f.Fuzz(func(t *testing.T, id int, major, minor uint32, point, typ, source, option string) {
		point = "/" + point
		line := fmt.Sprintf("%d 35 %d:%d / %s rw,noatime master:1 - %s %s %s\n", id, major, minor, escape(point), escape(typ), escape(source), escape(option))
		if strings.ContainsAny(line[:len(line)-1], "\n") {
			t.Fatalf("escape: %q", line)
		}
		all := Parse(line)
		if len(all) != 1 {
			t.Fatalf("%q: %+v", line, all)
		}
		m := all[0]
		if m.ID != id || m.Dev != unix.Mkdev(major, minor) || m.Point != point || m.Type != typ || m.Source != source {
			t.Errorf("%q: %+v", line, m)
		}
		if name, _, _ := strings.Cut(escape(option), "="); !strings.Contains(option, ",") && !m.Has(name) {
			t.Errorf("%q: %+v", line, m)
		}
		for _, m := range Parse(point + source + option) { // whatever it is
			if len(m.Point) > len(point+source+option) {
				t.Errorf("%q: %+v", point+source+option, m)
			}
		}
	})
}
