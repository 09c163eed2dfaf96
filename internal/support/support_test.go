package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, in, want string
		secrets        []string
		n              int
	}{
		{"nothing", "abc", "abc", nil, 0},
		{"all of them", "x hunter22 y hunter22", "x [left out] y [left out]", []string{"hunter22\n"}, 2},
		{"as JSON has it", `"a\"bcdef\n"`, `"[left out]\n"`, []string{"a\"bcdef"}, 1},
		{"as JSON has it that is for HTML", `"off -p x \u0026\u0026 echo \u003e/dev/null"`, `"[left out]"`, []string{"off -p x && echo >/dev/null"}, 1},
		{"as JSON has it that is not", `"off -p \"x\" && \u0007"`, `"[left out]"`, []string{"off -p \"x\" && \a"}, 1},
		{"each line", "second line", "[left out]", []string{"first line\nsecond line\n"}, 1},
		{"the longer one first", "secret-secret", "[left out]", []string{"secret", "secret-secret"}, 1},
		{"not what is too short", "a b", "a b", []string{"a", ""}, 0},
	} {
		var secrets [][]byte
		for _, s := range x.secrets {
			secrets = append(secrets, []byte(s))
		}
		if out, n := Redact([]byte(x.in), secrets); string(out) != x.want || n != x.n {
			t.Errorf("%s: %q and %d, want %q and %d", x.name, out, n, x.want, x.n)
		}
	}
}

func TestWithoutValue(t *testing.T) {
	t.Parallel()
	const in = "level=WARN msg=\"fencing x\" node=a command=\"off -P hunter22\"\nlevel=WARN msg=other command=sqlite3\n{\"msg\":\"fencing x\",\"command\":\"off -P hunter22\"}\nend"
	const want = "level=WARN msg=\"fencing x\" node=a command=[left out]\nlevel=WARN msg=other command=sqlite3\n{\"msg\":\"fencing x\",\"command\":[left out]\nend"
	if got := string(WithoutValue([]byte(in), "fencing x", "command")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestArchive: an item that hangs or fails costs no other one, and no file of the
// archive has the secret.
func TestArchive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, archive) // the time is over when nothing else goes on
}

func archive(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	secret := []byte("correct horse battery staple")
	say := func(b string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(b), err }
	}
	files := Collect(t.Context(), time.Second, []Item{
		{"good", "what is good", say("fine "+string(secret), nil)},
		{"hangs", "what hangs", func(context.Context) ([]byte, error) { <-hang; return nil, nil }},
		{"fails", "what fails", say("a part", errors.New("torn\noff"))},
		{"long", "what is long", say(strings.Repeat("x", MaxFile)+"the end", nil)},
	}, [][]byte{secret})
	var b bytes.Buffer
	if err := Write(&b, "dir", time.Now(), "about", files); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, secret) {
			t.Errorf("%s has the secret", h.Name)
		}
		got[h.Name] = string(data)
	}
	if got["dir/good"] != "fine [left out]" || got["dir/hangs"] != "" || got["dir/fails"] != "a part" || !strings.HasSuffix(got["dir/long"], "the end") || len(got) != 5 {
		t.Errorf("the archive has %d files: good %q, fails %q", len(got), got["dir/good"], got["dir/fails"])
	}
	for _, want := range []string{"about\n", "what is good; 1 secrets are left out\n", "what hangs; not whole: no answer within 1s\n", "what fails; not whole: torn off\n"} {
		if !strings.Contains(got["dir/README"], want) {
			t.Errorf("README has no %q:\n%s", want, got["dir/README"])
		}
	}
}
