package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `goos: linux
BenchmarkEveryday/find-2   	       7	        45.10 ms-storage	         3.900 x-cached	         5.800 x-cached-changed	         0.8700 x-loopback	         5.900 x-storage
BenchmarkEveryday/read-4k-direct-libaio-16-2   	       7	         0.01200 ms-storage	         4.500 x-loopback	         4.900 x-storage
Benchmark lines that are none
BenchmarkEveryday/find-2   	       7	        44.00 ms-storage	         0.9000 x-loopback	         6.000 x-storage
PASS
`

func TestReadResults(t *testing.T) {
	all, err := readResults(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range all {
		got = append(got, fmt.Sprint(x.name, " ", x.values))
	}
	want := "find map[ms-storage:44 x-loopback:0.9 x-storage:6], read-4k-direct-libaio-16 map[ms-storage:0.012 x-loopback:4.5 x-storage:4.9]"
	if strings.Join(got, ", ") != want {
		t.Errorf("read %q", got)
	}
	if _, err := readResults(strings.NewReader("BenchmarkX-2 7 fast x-storage\n")); err == nil {
		t.Error("a value that is no number is taken")
	}
}

// What was measured is in the plot; what was not is an error.
func TestPlot(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.svg")
	if err := os.WriteFile(in, []byte(printed), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(out, []string{in}); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"find", "read-4k-direct-libaio-16", "loopback", "times as long"} {
		if !bytes.Contains(svg, []byte(text)) {
			t.Errorf("%q is not in the plot", text)
		}
	}
	for name, content := range map[string]string{"no benchmark": "PASS\n", "nothing of storage": "BenchmarkX-2 7 12 ns/op\n"} {
		if err := os.WriteFile(in, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(out, []string{in}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
