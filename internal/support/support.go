package support

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Item is one file of an archive.
type Item struct {
	Name string // within the archive
	What string // it is, for people
	// Get may take for ever: it is left behind when the time is over.
	Get func(ctx context.Context) ([]byte, error)
}

// File is an item that was asked for.
type File struct {
	Name, What string
	Data       []byte
	// Err is why it is not there, or not whole.
	Err error
	// Removed is how many times a secret was taken out of it.
	Removed int
}

// MaxFile bounds a file; of a longer one the end is kept.
const MaxFile = 8 << 20

// Collect asks for all items at once, each for limit at most, and takes what is
// secret out of them.
func Collect(ctx context.Context, limit time.Duration, items []Item, secrets [][]byte) []File {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type result struct {
		data []byte
		err  error
	}
	results := make([]chan result, len(items))
	for i, it := range items {
		results[i] = make(chan result, 1)
		go func() {
			data, err := it.Get(ctx)
			results[i] <- result{data, err}
		}()
	}
	files := make([]File, len(items))
	for i, it := range items {
		files[i] = File{Name: it.Name, What: it.What}
		var r result
		select {
		case r = <-results[i]:
		case <-ctx.Done():
			select {
			case r = <-results[i]:
			default:
				r.err = fmt.Errorf("no answer within %v", limit)
			}
		}
		data, n := Redact(r.data, secrets)
		if len(data) > MaxFile {
			data = append([]byte("[the begin is left out]\n"), data[len(data)-MaxFile:]...)
		}
		files[i].Data, files[i].Removed, files[i].Err = data, n, r.err
	}
	return files
}

// mark stands where a secret was.
const mark = "[left out]"

// shortest is the length of a secret that is looked for: shorter ones would be found
// where they are none.
const shortest = 6

// Redact takes each secret out of b, also where it is written as JSON or Go write it,
// and each of its lines. It counts how many it took out.
func Redact(b []byte, secrets [][]byte) (out []byte, n int) {
	var words []string
	for _, s := range secrets {
		for _, w := range append(strings.Split(string(s), "\n"), string(s)) {
			words = append(words, spellings(strings.TrimSpace(w))...)
		}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return len(w) < shortest })
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // the whole before its parts
	for _, w := range slices.Compact(words) {
		if k := bytes.Count(b, []byte(w)); k > 0 {
			b, n = bytes.ReplaceAll(b, []byte(w), []byte(mark)), n+k
		}
	}
	return b, n
}

// spellings are the ways in which logs and JSON write w. Encoders of JSON differ in
// whether they write <, > and &, which commands have, in hexadecimal.
func spellings(w string) []string {
	all := []string{w, unquoted(strconv.Quote(w))}
	for _, html := range []bool{false, true} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		_ = e.Encode(w) // a string can always be written
		all = append(all, unquoted(strings.TrimSuffix(b.String(), "\n")))
	}
	return all
}

func unquoted(s string) string { return s[1 : len(s)-1] }

// WithoutValue cuts off lines of a log, of text or of JSON, at the value of a key, where
// they have a message. Older versions wrote there what is secret by now.
func WithoutValue(log []byte, message, key string) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(message)) {
			for _, before := range []string{" " + key + "=", `"` + key + `":`} {
				if i := bytes.Index(line, []byte(before)); i >= 0 {
					line = append(append([]byte{}, line[:i+len(before)]...), mark+"\n"...)
				}
			}
		}
		out.Write(line)
	}
	return out.Bytes()
}

// Contents tells what is in an archive, a line for each file.
func Contents(files []File) string {
	var out strings.Builder
	for _, f := range files {
		fmt.Fprintf(&out, "%-18s %9d bytes  %s", f.Name, len(f.Data), f.What)
		if f.Removed > 0 {
			fmt.Fprintf(&out, "; %d secrets are left out", f.Removed)
		}
		if f.Err != nil {
			fmt.Fprintf(&out, "; not whole: %s", strings.ReplaceAll(f.Err.Error(), "\n", " "))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// Write writes files below the folder dir as a tar archive, compressed by gzip, with
// what is in it as README.
func Write(w io.Writer, dir string, now time.Time, about string, files []File) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	readme := File{Name: "README", Data: []byte(about + "\n" + Contents(files))}
	for _, f := range append([]File{readme}, files...) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: dir + "/" + f.Name, Mode: 0o600, Size: int64(len(f.Data)), ModTime: now}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.Data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}
