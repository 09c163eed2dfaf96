package rotation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// A member that hears nothing of the end of a change sees it on the storage.
func TestRotateWithoutAnEnd(t *testing.T) {
	var now []string
	s := &Secret{dir: t.TempDir(), current: []byte(strings.Repeat("o", 64))}
	s.Bind(func(list [][]byte) {
		now = nil
		for _, b := range list {
			now = append(now, string(b[:1]))
		}
	})
	want := func(letters string) {
		t.Helper()
		if got := strings.Join(now, ""); got != letters {
			t.Errorf("the network takes %q, want %q", got, letters)
		}
	}
	want("o")
	for _, x := range []string{"n", "m"} { // two at the same time
		if err := s.prepare(1, strings.Repeat(x, 64)); err != nil {
			t.Fatal(err)
		}
	}
	want("onm")
	if s.Problem(time.Now()) != nil || s.Problem(time.Now().Add(time.Hour)) == nil {
		t.Error("a change that does not end is a problem after a while")
	}
	k, err := nodestate.ReadSecrets(s.dir)
	if err != nil || len(k.All()) != 3 {
		t.Errorf("%+v %v", k, err)
	}
	if err := s.abort(generation(1, "m").Fingerprint); err != nil {
		t.Fatal(err)
	}
	want("on")
	if changed, err := s.counts(generation(1, "n")); !changed || err != nil {
		t.Errorf("%v %v", changed, err)
	}
	want("no")
	s.finish(1)
	want("n")
	if err := s.prepare(1, strings.Repeat("m", 64)); err == nil {
		t.Error("a generation that is over")
	}
	// A change that went by this node.
	if changed, err := s.counts(generation(2, "x")); changed || err != nil || s.Problem(time.Now()) == nil {
		t.Errorf("%v %v", changed, err)
	}
	want("n")
	if err := s.prepare(2, strings.Repeat("x", 64)); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.counts(generation(2, "x")); !changed || err != nil || s.Problem(time.Now()) != nil {
		t.Errorf("%v %v", changed, err)
	}
	want("xn")
}

func generation(n uint64, letter string) register.Generation {
	return register.Generation{Number: n, Fingerprint: register.Fingerprint([]byte(strings.Repeat(letter, 64)))}
}

// abandoned is what daemons leave in a state directory that were killed in the
// middle of a change of the secret, as often as there is room for.
func abandoned(current string) nodestate.Secrets {
	k := nodestate.Secrets{Current: nodestate.Secret{Generation: 0, Secret: current}}
	for i := range MaxNext {
		k.Next = append(k.Next, nodestate.Secret{Generation: 1, Secret: strings.Repeat(fmt.Sprint(i), 64)})
	}
	return k
}

// Changes that were begun and not ended become void when the present secret counts
// in their generation. A node that was killed meanwhile comes to the same.
func TestChangesBecomeVoid(t *testing.T) {
	old := strings.Repeat("o", 64)
	state := t.TempDir()
	begin := func(number uint64) (*Secret, *[][]byte) {
		t.Helper()
		k, err := nodestate.ReadSecrets(state)
		if err != nil {
			t.Fatal(err)
		}
		used := new([][]byte)
		s := NewSecret(state, &register.Cluster{Generation: number, Secret: []byte(old)}, k)
		if err := s.Keep(k); err != nil {
			t.Fatal(err)
		}
		s.Bind(func(list [][]byte) { *used = list })
		return s, used
	}
	for _, killed := range []bool{false, true} {
		b, err := json.Marshal(abandoned(old))
		if err == nil {
			err = os.WriteFile(filepath.Join(state, "secrets"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, used := begin(0)
		if err := s.prepare(1, strings.Repeat("n", 64)); err == nil || len(*used) != 1+MaxNext {
			t.Errorf("one more than there is room for: %v, with %d", err, len(*used))
		}
		if killed {
			s, used = begin(1) // the storage says so when it starts
		} else if changed, err := s.counts(register.Generation{Number: 1, Fingerprint: register.Fingerprint([]byte(old))}); changed || err != nil {
			t.Errorf("void: %v %v", changed, err)
		}
		if n, f, pending := s.state(); n != 1 || f != register.Fingerprint([]byte(old)) || pending != 0 || len(*used) != 1 {
			t.Errorf("generation %d with %s, %d begun, %d used", n, f, pending, len(*used))
		}
		if k, err := nodestate.ReadSecrets(state); err != nil || k.Current != (nodestate.Secret{Generation: 1, Secret: old}) || len(k.Next) != 0 {
			t.Errorf("%+v %v", k, err)
		}
		if s.prepare(1, strings.Repeat("0", 64)) == nil || s.Problem(time.Now().Add(time.Hour)) != nil {
			t.Error("one that is void goes on")
		}
		if err := s.prepare(2, strings.Repeat("n", 64)); err != nil {
			t.Error(err)
		}
	}
}

// Others become void within the time that the former secret counts, too: that
// has its end all the same.
func TestVoidEndsTheFormerSecret(t *testing.T) {
	s := &Secret{dir: t.TempDir(), current: []byte(strings.Repeat("o", 64)), use: func([][]byte) {}}
	now := strings.Repeat("n", 64)
	err := errors.Join(s.prepare(1, now))
	_, err1 := s.counts(generation(1, "n"))
	_, err2 := s.counts(generation(2, "n"))
	if err := errors.Join(err, err1, err2); err != nil || s.former == nil {
		t.Fatalf("%v, the former one is %q", err, s.former)
	}
	s.finish(1)
	if n, secret := s.Text(); n != 2 || secret != now || s.former != nil {
		t.Errorf("generation %d with %q; the former one is %q", n, secret, s.former)
	}
}
