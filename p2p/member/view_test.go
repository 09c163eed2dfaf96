package member_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

func TestViewFile(t *testing.T) {
	v := testView()
	b, err := member.EncodeView(v)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte("dmxfs-view 1 ")) || b[len(b)-1] != '\n' {
		t.Errorf("file %.40q", b)
	}
	got, err := member.ParseView(b, testCluster)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, v) {
		t.Errorf("%+v became %+v", v, got)
	}
	// An empty view has lists in its JSON, not null.
	b, err = member.EncodeView(&member.View{Cluster: testCluster, Epoch: 1, By: v.By, Reason: member.ReasonLeave})
	if err != nil || bytes.Contains(b, []byte("null")) {
		t.Errorf("%s, %v", b, err)
	}
}

// Every damage to a file is ErrUnreadable: never a view, never "newer", which
// would stop the cluster.
func TestEveryDamageIsNoticed(t *testing.T) {
	b, err := member.EncodeView(testView())
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(b) {
		if _, err := member.ParseView(b[:n], testCluster); !errors.Is(err, member.ErrUnreadable) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	format := len("dmxfs-view ") // a damaged format number can look like that of a newer version
	for i := range b {
		if i >= format && i <= format+1 {
			continue
		}
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			if _, err := member.ParseView(c, testCluster); !errors.Is(err, member.ErrUnreadable) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	for _, c := range [][]byte{append(bytes.Clone(b), 'x'), make([]byte, len(b)), nil} {
		if _, err := member.ParseView(c, testCluster); !errors.Is(err, member.ErrUnreadable) {
			t.Errorf("%.20q: %v", c, err)
		}
	}
}

// file is a view file with this JSON, whole and with the right checksum.
func file(format int, json string) []byte {
	sum := crc32.Checksum([]byte(json), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "dmxfs-view %d %d %08x\n%s", format, len(json), sum, json)
}

// What is whole, and not understood, was made by something else: it must never
// be taken over as if it were damaged.
func TestWholeButNotUnderstood(t *testing.T) {
	good, _ := member.EncodeView(testView())
	_, json, _ := strings.Cut(string(good), "\n")
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"good":          {file(1, json), nil},
		"newer":         {file(2, "anything"), member.ErrNewer},
		"no JSON":       {file(1, "anything"), member.ErrNewer},
		"unknown field": {file(1, strings.Replace(json, `"epoch"`, `"quorum":3,"epoch"`, 1)), member.ErrNewer},
		"two values":    {file(1, json+json), member.ErrNewer},
		"reason":        {file(1, strings.Replace(json, `"drop"`, `"mood"`, 1)), member.ErrNewer},
		"epoch zero":    {file(1, strings.Replace(json, `"epoch":42`, `"epoch":0`, 1)), member.ErrNewer},
		"epoch over":    {file(1, strings.Replace(json, `"epoch":42`, `"epoch":16777216`, 1)), member.ErrNewer},
		"order":         {file(1, strings.Replace(json, `"peer":"a","inc":"0000000000000001","host"`, `"peer":"z","inc":"0000000000000001","host"`, 1)), member.ErrNewer},
		"peer":          {file(1, strings.ReplaceAll(json, `"peer":"a"`, `"peer":"../a"`)), member.ErrNewer},
		"another":       {file(1, strings.Replace(json, testCluster, strings.Repeat("d", 32), 1)), member.ErrForeign},
	} {
		if _, err := member.ParseView(c.file, testCluster); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestEncodeViewRefuses(t *testing.T) {
	for name, change := range map[string]func(v *member.View){
		"cluster":            func(v *member.View) { v.Cluster = "x" },
		"epoch":              func(v *member.View) { v.Epoch = 0 },
		"maker":              func(v *member.View) { v.By = member.Node{} },
		"reason":             func(v *member.View) { v.Reason = "" },
		"members not sorted": func(v *member.View) { v.Members[0], v.Members[1] = v.Members[1], v.Members[0] },
		"member twice":       func(v *member.View) { v.Members[1] = v.Members[0] },
		"too many members":   func(v *member.View) { v.Members = make([]member.Member, member.MaxMembers+1) },
		"control character":  func(v *member.View) { v.Members[0].Host = "a\nb" },
		"no UTF-8":           func(v *member.View) { v.Members[0].Version = "\xff" },
		"negative S":         func(v *member.View) { v.Members[0].Cache = -1 },
		"dropped member":     func(v *member.View) { v.Dropped[0].Node = v.Members[0].Node },
		"long why":           func(v *member.View) { v.Dropped[0].Why = strings.Repeat("x", member.MaxWhy+1) },
		"revoked order":      func(v *member.View) { v.Revoked = []string{"y", "x"} },
		"policy":             func(v *member.View) { v.Policy.TOML = strings.Repeat("x", member.MaxPolicy+1) },
	} {
		v := testView()
		change(v)
		if b, err := member.EncodeView(v); err == nil {
			t.Errorf("%s: was written as %.100s", name, b)
		}
	}
}

func FuzzView(f *testing.F) {
	b, _ := member.EncodeView(testView())
	f.Add(b)
	f.Add(file(2, "{}"))
	_, json, _ := strings.Cut(string(b), "\n")
	f.Add([]byte(json))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Raw, and as the JSON of a file that is whole.
		for _, c := range [][]byte{b, file(1, string(b))} {
			v, err := member.ParseView(c, testCluster)
			if err != nil {
				continue
			}
			one, err := member.EncodeView(v)
			if err != nil {
				t.Fatalf("%v was read, and cannot be written: %v", v, err)
			}
			w, err := member.ParseView(one, testCluster)
			if err != nil {
				t.Fatal(err)
			}
			if two, _ := member.EncodeView(w); !bytes.Equal(one, two) {
				t.Errorf("%s became %s", one, two)
			}
		}
	})
}

func TestViewName(t *testing.T) {
	for _, e := range []locks.Epoch{1, 42, member.MaxEpoch} {
		name := member.ViewName(e)
		if got, ok := member.ParseViewName(name); !ok || got != e || len(name) != 20 {
			t.Errorf("%d: %q, %d, %v", e, name, got, ok)
		}
	}
	for _, name := range []string{"", "1", "00000000000000000000", "0000000000000000001x", "+0000000000000000001",
		member.ViewName(member.MaxEpoch + 1), "99999999999999999999", "000000000000000000001"} {
		if e, ok := member.ParseViewName(name); ok {
			t.Errorf("%q is taken for view %d", name, e)
		}
	}
	if member.ViewName(9) >= member.ViewName(10) {
		t.Error("names do not sort as epochs do")
	}
}

func TestNode(t *testing.T) {
	n := member.Node{Peer: "12D3KooW", Inc: 0xabc}
	got, err := member.ParseNode(n.ID())
	if err != nil || got != n {
		t.Errorf("%v became %v, %v", n, got, err)
	}
	for _, id := range []locks.NodeID{"", "a", "a.", "a.1", "a.0000000000000000", "a.000000000000000G", "a.000000000000000A", ".0000000000000001", "a/b.0000000000000001"} {
		if n, err := member.ParseNode(id); err == nil {
			t.Errorf("%q is taken for %v", id, n)
		}
	}
	// The lock algorithms sort names, the views nodes: in the same order.
	list := []member.Node{{Peer: "a", Inc: 2}, {Peer: "a", Inc: 1 << 60}, {Peer: "a0", Inc: 1}, {Peer: "aA", Inc: 1}, {Peer: "b", Inc: 1}}
	for i := 1; i < len(list); i++ {
		if list[i-1].Compare(list[i]) >= 0 || list[i-1].ID() >= list[i].ID() {
			t.Errorf("%v and %v are in another order", list[i-1], list[i])
		}
	}
}

func TestLocksView(t *testing.T) {
	v := testView()
	l := v.Locks(v.Members[1].Node)
	if l.Epoch != 42 || len(l.Members) != 2 || l.Index(l.Self) != 1 {
		t.Errorf("%+v", l)
	}
}
