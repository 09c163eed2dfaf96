package journalview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dmxfs/dmxfs/story"
)

// Export makes p write to a file, by its ending .csv or .jsonl, if its name is not empty; -
// is JSON lines to where p prints. finish ends that, whatever err is; the file is there only
// if nothing went wrong.
func (p *Printer) Export(file string) (finish func(err error) error, err error) {
	switch file {
	case "":
		return func(err error) error { return err }, nil
	case "-":
		p.tw = nil
		return func(err error) error { return err }, nil
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".dmxfs-export-*")
	if err != nil {
		return nil, fmt.Errorf("--export: %w", err)
	}
	flush := func() error { return nil }
	p.tw, p.sink = nil, func(b []byte) error { _, err := f.Write(append(b[:len(b):len(b)], '\n')); return err }
	if strings.HasSuffix(file, ".csv") {
		if p.sink, flush, err = csvSink(f); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	return func(err error) error {
		if err == nil {
			err = flush()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), file)
		}
		if err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return nil
	}, nil
}

// csvSink writes records, which come as JSON, as CSV.
func csvSink(w io.Writer) (sink func([]byte) error, flush func() error, err error) {
	c, err := story.NewCSV(w)
	if err != nil {
		return nil, nil, err
	}
	return func(b []byte) error {
		var e story.Entry
		if err := json.Unmarshal(b, &e); err != nil {
			return fmt.Errorf("record: %w", err)
		}
		if e.Member == "" { // this node's own
			e.Member = string(e.Node)
		}
		return c.Write(&e)
	}, c.Flush, nil
}
