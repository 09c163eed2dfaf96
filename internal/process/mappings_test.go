package process

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What a file has behind it is its own only where it was changed; a name may have spaces.
func TestMappings(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a file: two")
	if err := os.WriteFile(name, make([]byte, 3*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 3*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	find := func() Mapping {
		all, err := Mappings()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.File == name {
				return m
			}
		}
		t.Fatalf("%d mappings, none of %s", len(all), name)
		return Mapping{}
	}
	m := find()
	if int(m.To-m.From) != len(b) || m.Mode != "rw-p" || m.Own != 0 || m.Huge != 0 {
		t.Errorf("%+v, want %d bytes, rw-p and nothing of its own", m, len(b))
	}
	b[os.Getpagesize()] = 1
	if m := find(); m.Own != os.Getpagesize() {
		t.Errorf("%d bytes are its own after a change, want %d", m.Own, os.Getpagesize())
	}
}

func TestParseMapping(t *testing.T) {
	m, err := parseMapping("7f6b59270000-7f6b592d3000 rw-s 00012000 00:01 908637                     /memfd:dmxfs-claims (deleted)")
	if want := (Mapping{From: 0x7f6b59270000, To: 0x7f6b592d3000, Mode: "rw-s", File: "/memfd:dmxfs-claims (deleted)"}); err != nil || m != want {
		t.Errorf("%+v (%v), want %+v", m, err, want)
	}
	m, err = parseMapping("00400000-00401000 r-xp 00000000 00:00 0 ")
	if want := (Mapping{From: 0x400000, To: 0x401000, Mode: "r-xp"}); err != nil || m != want {
		t.Errorf("%+v (%v), want %+v", m, err, want)
	}
	for _, line := range []string{"", "x-y r-xp", "400000 r-xp", "400000-zz r-xp 0 0 0"} {
		if m, err := parseMapping(line); err == nil {
			t.Errorf("%q: %+v", line, m)
		}
	}
}
