package register

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func secretOf(letter string) []byte { return []byte(strings.Repeat(letter, 40)) }

// Of changes of the secret at the same time one is done.
func TestGenerationsOfTheSecret(t *testing.T) {
	dir := t.TempDir()
	a := founded(t, dir, "a")
	first, err := a.Generation()
	if err != nil || first.Number != 0 {
		t.Fatalf("%+v %v", first, err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []string
	for _, x := range []string{"p", "q", "r", "s"} {
		d := newDir(t, dir, x)
		wg.Go(func() {
			g := Generation{Number: 1, Fingerprint: Fingerprint(secretOf(x))}
			err := d.SetGeneration(g)
			if err == nil {
				err = d.SetGeneration(g) // the answer got lost, so it tries again
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, x)
			case !errors.Is(err, ErrNotNext):
				t.Errorf("%s: %v", x, err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%v have changed the secret", won)
	}
	secret := secretOf(won[0])
	if g, err := a.Generation(); err != nil || g.Number != 1 || g.Fingerprint != Fingerprint(secret) {
		t.Errorf("%+v %v", g, err)
	}
	if err := a.RemoveSecret(); err != nil {
		t.Fatal(err)
	}

	// Who joins now needs the one that counts, and is told so.
	for what, e := range map[string]Expect{"none": {}, "the first one": {Secret: secretOf("x")}, "kept ones that do not count": {Kept: [][]byte{secretOf("y"), secretOf("z")}}} {
		_, err := newDir(t, dir, "b").Init(e)
		if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), "secret show") || !strings.Contains(err.Error(), "was changed") {
			t.Errorf("with %s: %v", what, err)
		}
	}
	for what, e := range map[string]Expect{"it": {Secret: secret}, "it among those that were kept": {Secret: secretOf("x"), Kept: [][]byte{secretOf("y"), secret}}} {
		c, err := newDir(t, dir, "b").Init(e)
		if err != nil || !bytes.Equal(c.Secret, secret) || c.Generation != 1 || c.Fingerprint != Fingerprint(secret) {
			t.Errorf("with %s: %+v %v", what, c, err)
		}
		if e.Kept != nil && (len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "former")) {
			t.Errorf("warnings: %q", c.Warnings)
		}
	}

	// What is no generation is passed over; one that is damaged is not.
	for _, name := range []string{"0000000000", "2", "99999999999", "new-x-y-1", "secret"} {
		if err := os.WriteFile(filepath.Join(dir, secretsDir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if g, err := a.Generation(); err != nil || g.Number != 1 {
		t.Errorf("%+v %v", g, err)
	}
	if err := os.WriteFile(filepath.Join(dir, secretsDir, generationName(2)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Generation(); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}
