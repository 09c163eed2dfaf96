package figures

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"flag"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

var docs = flag.Bool("figures.docs", false, "write what comes out of a full run into docs/simulation.md, instead of comparing a little")

func quick(t *testing.T) *Data {
	t.Helper()
	calls := 0
	o := Options{Quick: true, Seed: 1, Progress: func() { calls++ }, brief: long.OrPure(true, false)}
	d, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if calls != Runs(o) {
		t.Errorf("%d steps of progress, %d were announced", calls, Runs(o))
	}
	return d
}

// All files are there, can be read, and are the same each time; every figure
// shows a line for each of its series.
func TestWrite(t *testing.T) {
	long.NoRace(t)
	d := quick(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	names, err := d.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3*len(Figures()) + 3; len(names) != want {
		t.Errorf("%d files, want %d: %v", len(names), want, names)
	}
	again := t.TempDir()
	if _, err := quick(t).Write(again); err != nil {
		t.Fatal(err)
	}
	for _, f := range Figures() {
		checkSeries(t, d, f)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if same, err := os.ReadFile(filepath.Join(again, name)); err != nil || !bytes.Equal(b, same) {
			t.Errorf("%s is another one the second time (%v)", name, err)
		}
		switch filepath.Ext(name) {
		case ".png":
			img, err := png.Decode(bytes.NewReader(b))
			if err != nil || img.Bounds().Dx() < 500 {
				t.Errorf("%s: %v", name, err)
			}
		case ".svg":
			if err := wellFormed(b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case ".csv":
			rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
			if err != nil || len(rows) < 3 {
				t.Errorf("%s: %d rows, %v", name, len(rows), err)
			}
		case ".md":
			if n := strings.Count(string(b), "\n|"); n < 30 {
				t.Errorf("%s: %d lines of tables", name, n)
			}
		default:
			t.Errorf("what is %s?", name)
		}
	}
}

func wellFormed(b []byte) error {
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func checkSeries(t *testing.T, d *Data, f Figure) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(d.CSV(f))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range f.series {
		if rows[0][1+2*i] != f.label(s) {
			t.Errorf("%s: column %q, want %q", f.Name, rows[0][1+2*i], f.label(s))
		}
		values := 0
		for _, row := range rows[1:] {
			if row[1+2*i] != "" {
				values++
			}
		}
		if values == 0 || values < len(rows)-1 && f.measure.name != "sync" {
			t.Errorf("%s: %s has %d of %d values", f.Name, s.Label, values, len(rows)-1)
		}
	}
}

const (
	docsFile  = "../../docs/simulation.md"
	docsBegin = "<!-- what follows is claims.md of: dmxfs-sim figures -->\n"
	docsEnd   = "<!-- end of claims.md -->\n"
)

// The documentation has every claim, with its rule. That it has what comes out
// is made so by -figures.docs, which takes a minute or two.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), docsBegin)
	section, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", docsFile, docsBegin, docsEnd)
	}
	if *docs {
		d, err := Make(t.Context(), Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		now := before + docsBegin + "\n" + string(d.markdown(d.Claims())) + "\n" + docsEnd + after
		if err := os.WriteFile(docsFile, []byte(now), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, c := range invented(func(string, string, Series, float64) float64 { return 1 }).Claims() {
		line := ""
		for _, l := range strings.Split(section, "\n") {
			if strings.HasPrefix(l, "| "+c.Source+" | "+c.Text+" | ") {
				line = l
			}
		}
		if !strings.HasSuffix(line, " | "+c.Rule+" |") {
			t.Errorf("%s does not have the claim %q with the rule %q; see -figures.docs", docsFile, c.Text, c.Rule)
		}
	}
}
