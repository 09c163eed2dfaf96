package top

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"
)

// Rates are what this node did, per second since the snapshot before. They are 0
// in the first one.
type Rates struct {
	Grants   float64 `json:"grants"`   // locks granted
	Denials  float64 `json:"denials"`  // requests denied
	Losses   float64 `json:"losses"`   // locks lost
	Messages float64 `json:"messages"` // sent for requests that were granted
	Requests float64 `json:"requests"` // of the kernel
	Read     float64 `json:"read"`     // bytes
	Written  float64 `json:"written"`  // bytes
	// Wait is the mean wait of what was granted, in seconds.
	Wait float64 `json:"wait_s"`
}

// Counters are the daemon's at one moment, by name, added up over their labels.
type Counters struct {
	At     time.Time
	Values map[string]float64
}

// ReadCounters reads what the daemon serves to Prometheus as text, the metrics
// that [RatesOf] is made of.
func ReadCounters(at time.Time, r io.Reader) (Counters, error) {
	c := Counters{at, map[string]float64{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "dmxfs_") {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		value := line[strings.LastIndexByte(line, ' ')+1:]
		if i := strings.LastIndexByte(line, '}'); i >= 0 {
			value, _, _ = strings.Cut(strings.TrimSpace(line[i+1:]), " ") // a time may follow
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			c.Values[name] += v
		}
	}
	return c, lines.Err()
}

// RatesOf is what was counted from a to b, per second. A daemon that began anew
// between them has none.
func RatesOf(a, b Counters) Rates {
	seconds := b.At.Sub(a.At).Seconds()
	if seconds <= 0 || a.Values == nil || b.Values == nil {
		return Rates{}
	}
	more := func(name string) float64 { return max(b.Values[name]-a.Values[name], 0) }
	per := func(name string) float64 { return more(name) / seconds }
	r := Rates{
		Grants: per("dmxfs_lock_grants_total"), Denials: per("dmxfs_lock_denials_total"), Losses: per("dmxfs_lock_losses_total"),
		Messages: per("dmxfs_lock_grant_messages_total"), Requests: per("dmxfs_fuse_request_seconds_count"),
		Read: per("dmxfs_fuse_read_bytes_total"), Written: per("dmxfs_fuse_written_bytes_total"),
	}
	if n := more("dmxfs_lock_wait_seconds_count"); n > 0 {
		r.Wait = more("dmxfs_lock_wait_seconds_sum") / n
	}
	return r
}
