package metrics

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// TestBuckets compares with the library's own histogram what falls where.
func TestBuckets(t *testing.T) {
	t.Parallel()
	ref := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", NativeHistogramBucketFactor: 1.2, NativeHistogramZeroThreshold: prometheus.NativeHistogramZeroThresholdZero})
	var h Histogram
	var ds []time.Duration
	for d := time.Duration(2); d < 200*time.Hour; d += d/7 + 1 {
		ds = append(ds, d)
	}
	for exp := range 9 { // the bounds themselves
		ds = append(ds, time.Duration(int64(1)<<exp)*time.Second)
	}
	for _, d := range ds {
		h.Observe(d)
		ref.Observe(d.Seconds())
	}
	got, want := written(t, h.metric(prometheus.NewDesc("x", "", nil, nil))), written(t, ref)
	if got.GetSchema() != want.GetSchema() {
		t.Fatalf("schema %d, want %d: the reference has changed", got.GetSchema(), want.GetSchema())
	}
	if g, w := fmt.Sprint(got.PositiveSpan, got.PositiveDelta), fmt.Sprint(want.PositiveSpan, want.PositiveDelta); g != w {
		t.Errorf("native buckets\n%s\nwant\n%s", g, w)
	}
	if got.GetSampleCount() != uint64(len(ds)) || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
		t.Errorf("count %d, sum %v, want %d, %v", got.GetSampleCount(), got.GetSampleSum(), len(ds), want.GetSampleSum())
	}
	for _, b := range got.Bucket {
		n := uint64(0)
		for _, d := range ds {
			if d.Seconds() <= b.GetUpperBound() {
				n++
			}
		}
		if b.GetCumulativeCount() != n {
			t.Errorf("%d durations up to %v s, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
		}
	}
}

func TestBucketsAtTheEdges(t *testing.T) {
	t.Parallel()
	var h Histogram
	for _, d := range []time.Duration{-time.Second, 0, 1, math.MaxInt64} {
		h.Observe(d)
	}
	if a, b := h.counts[0].Load(), h.counts[buckets-1].Load(); a < 2 || b != 1 {
		t.Errorf("%d in the first bucket and %d in the last one, want at least 2 and 1", a, b)
	}
}

func written(t *testing.T, m prometheus.Metric) *dto.Histogram {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Histogram
}

// filled is a handler with something of everything.
func filled() *Handler {
	s := New([]string{"open", "flock"}, []string{"rcv", "rw"}, []string{"look"})
	for _, step := range []Step{Requested, Granted, Denied, Withdrawn, Released, Lost} {
		s.Lock(Lock{Step: step, Class: 1, Algorithm: "rw", Final: true, Wait: time.Second, Hold: 2 * time.Second, Messages: 4})
	}
	s.Lock(Lock{Step: Released, Class: 1, Algorithm: "rw"})          // a part
	s.Lock(Lock{Step: Granted, Class: 1, Algorithm: "none"})         // not known
	s.Lock(Lock{Step: Granted, Class: 7, Algorithm: "rw"})           // not known
	s.Lock(Lock{Step: Lost, Class: 1, Algorithm: "rw", Final: true}) // a wait that was lost
	s.Request(15, time.Millisecond, 100, 0)
	s.Request(16, time.Millisecond, 0, 50)
	s.Request(1<<20, time.Millisecond, 0, 50)
	s.Handover(time.Millisecond)
	s.Refresh(time.Millisecond)
	s.Broken(2)
	s.LateWrite()
	s.Storage("look", time.Millisecond, io.EOF)
	s.Storage("none", time.Millisecond, nil)
	began := time.Now()
	s.Frozen(began)
	s.Frozen(began.Add(time.Second))
	s.Installed(began.Add(3 * time.Second))
	s.Suspended(began)
	s.Suspended(began.Add(time.Second))
	s.Resumed(began.Add(5 * time.Second))
	s.Suspended(began)
	s.Expelled(began.Add(time.Second))
	return &Handler{
		Set: s, Name: func(op uint32) string { return map[uint32]string{15: "READ", 16: "WRITE", 17: "STATFS"}[op] },
		Look: func() Snapshot {
			return Snapshot{
				Version: "1", State: "live", Granting: true, Problems: 1, Epoch: 7, Members: map[string]int{"live": 2, "silent": 1}, Held: 3, Waiting: 2,
				OldestWait: 9 * time.Second, WaitsOn: map[Peer]int{{"id-b", "b"}: 2}, EngineLongest: time.Millisecond, LookAge: time.Second,
				Takeovers: 2, TakeoverPause: 40 * time.Millisecond,
				Peers:   []PeerState{{Peer: Peer{"id-b", "b"}, Connected: true, Connections: 1, RTT: time.Millisecond, Heard: time.Second}, {Peer: Peer{"id-c", "c"}, Heard: -1}},
				Journal: Journal{Healthy: true, Records: 5, Next: 6, Bytes: 7, Disk: 8, Pending: 1, Dropped: 2, Damaged: 1, Oldest: began},
				Caches:  Caches{1, 2, 3, 4},
			}
		},
		Paths: func() []PathCount {
			return []PathCount{{"a", "flock", 1}, {"b\xff\x1b[2J", "open", 1}, {"b\xff\x1b[2J", "open", 1}, {"c", "open", 1}}
		},
	}
}

func get(t *testing.T, h http.Handler, url string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	return w.Code, w.Body.String()
}

func TestText(t *testing.T) {
	t.Parallel()
	_, text := get(t, filled(), "/metrics")
	for _, want := range []string{
		`dmxfs_lock_grants_total{algorithm="rw",class="flock"} 1`,
		`dmxfs_lock_grants_total{algorithm="rcv",class="open"} 0`,
		`dmxfs_lock_denials_total{algorithm="rw",class="flock"} 1`,
		`dmxfs_lock_releases_total{algorithm="rw",class="flock"} 1`,
		`dmxfs_lock_losses_total{algorithm="rw",class="flock"} 1`,
		`dmxfs_lock_withdrawals_total{algorithm="rw",class="flock"} 2`,
		`dmxfs_lock_grant_messages_total{algorithm="rw",class="flock"} 4`,
		`dmxfs_lock_wait_seconds_sum{algorithm="rw",class="flock"} 1`,
		`dmxfs_lock_wait_seconds_bucket{algorithm="rw",class="flock",le="1.0"} 1`,
		`dmxfs_lock_hold_seconds_count{algorithm="rw",class="flock"} 2`,
		`dmxfs_fuse_request_seconds_count{request="READ"} 1`,
		`dmxfs_fuse_read_bytes_total 100`, `dmxfs_fuse_written_bytes_total 50`,
		`dmxfs_lock_breaks_total 2`, `dmxfs_late_writes_total 1`,
		`dmxfs_storage_operation_failures_total{operation="look"} 1`,
		`dmxfs_view_change_seconds_sum 3`, `dmxfs_view_change_seconds_count 1`,
		`dmxfs_suspended_seconds_total 6`, `dmxfs_suspensions_total 2`, `dmxfs_expulsions_total 1`,
		`dmxfs_takeovers_total 2`, `dmxfs_takeover_pause_seconds 0.04`,
		`dmxfs_members{state="silent"} 1`, `dmxfs_members{state="suspended"} 0`,
		`dmxfs_lock_requests_waiting_for_peer{host="b",peer="id-b"} 2`, `dmxfs_lock_oldest_wait_seconds 9`,
		`dmxfs_peer_connections{host="c",peer="id-c"} 0`,
		`dmxfs_journal_dropped_total 2`,
		`go_goroutines `, `process_open_fds `,
	} {
		if !strings.Contains(text, "\n"+strings.ReplaceAll(want, `le="1.0"`, `le="1"`)) {
			t.Errorf("no line %s", want)
		}
	}
	for _, not := range []string{`"none"`, "STATFS", "path=", `peer_rtt_seconds{host="c"`} {
		if strings.Contains(text, not) {
			t.Errorf("the text has %s", not)
		}
	}
}

// TestPaths: paths are shown to who asks for some, where anybody is told of them.
func TestPaths(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		query string
		hide  bool
		code  int
		want  []string
	}{
		{query: "", code: 200},
		{query: "?paths=0", code: 200},
		{query: "?paths=2", code: 200, want: []string{`dmxfs_path_requests_waiting{class="open",path="b\\xff\\x1b[2J"} 2`, `dmxfs_path_requests_waiting{class="flock",path="a"} 1`}},
		{query: "?paths=2", hide: true, code: 400},
		{query: "?paths=101", code: 400},
		{query: "?paths=-1", code: 400},
		{query: "?paths=x", code: 400},
	} {
		h := filled()
		if x.hide {
			h.Paths = nil
		}
		code, text := get(t, h, "/metrics"+x.query)
		if code != x.code || strings.Count(text, "\ndmxfs_path_") != len(x.want) {
			t.Errorf("%q: code %d and %d paths, want %d and %d", x.query, code, strings.Count(text, "\ndmxfs_path_"), x.code, len(x.want))
		}
		for _, w := range x.want {
			if !strings.Contains(text, w) {
				t.Errorf("%q: no line %s", x.query, w)
			}
		}
	}
}

// TestNative: a Prometheus that asks for protocol buffers gets native buckets.
func TestNative(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	r.Header.Set("Accept", string(format))
	filled().ServeHTTP(w, r)
	for dec := expfmt.NewDecoder(w.Body, format); ; {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err != nil {
			t.Fatalf("no dmxfs_lock_wait_seconds with native buckets: %v", err)
		}
		if f.GetName() == "dmxfs_lock_wait_seconds" && len(f.Metric[0].Histogram.PositiveSpan) > 0 {
			return
		}
	}
}

// TestPromtool has Prometheus's own tool check names and help.
func TestPromtool(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	_, text := get(t, filled(), "/metrics?paths=2")
	cmd := exec.CommandContext(t.Context(), tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// promtool is Prometheus's tool, or the reason not to run the test.
func promtool(t *testing.T) string {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install --no-install-recommends prometheus")
	}
	return tool
}

func TestDecode(t *testing.T) {
	t.Parallel()
	_, text := get(t, filled(), "/metrics?paths=2")
	fs, err := Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range fs {
		for _, s := range f.Samples {
			switch f.Name {
			case "dmxfs_epoch":
				fmt.Fprintln(&out, f.Type, *s.Value)
			case "dmxfs_lock_hold_seconds":
				fmt.Fprintln(&out, f.Type, s.Labels, *s.Count, *s.Sum)
			}
		}
	}
	if got, want := out.String(), "gauge 7\nhistogram map[algorithm:rw class:flock] 2 4\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := Decode(strings.NewReader("no metrics {")); err == nil {
		t.Error("no error for what are no metrics")
	}
}

func TestOnlyMetricsAreServed(t *testing.T) {
	t.Parallel()
	s := Server(filled())
	for path, code := range map[string]int{"/metrics": 200, "/": 404, "/locks": 404, "/debug/pprof/": 404} {
		if got, _ := get(t, s.Handler, path); got != code {
			t.Errorf("%s: %d, want %d", path, got, code)
		}
	}
}

// What counting costs. A request of the kernel takes 10 µs, a lock with nobody in
// its way some more.
func BenchmarkRequest(b *testing.B) {
	s := New(nil, nil, nil)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for d := time.Duration(1000); p.Next(); d += 17 {
			s.Request(15, d, 4096, 0)
		}
	})
}

func BenchmarkLock(b *testing.B) {
	s := New([]string{"open", "flock", "posix"}, []string{"maekawa", "rcv", "ring", "rw"}, nil)
	b.ReportAllocs()
	for b.Loop() {
		s.Lock(Lock{Step: Requested, Class: 2, Algorithm: "rw"})
		s.Lock(Lock{Step: Granted, Class: 2, Algorithm: "rw", Wait: 1000, Messages: 2})
		s.Lock(Lock{Step: Released, Class: 2, Algorithm: "rw", Final: true, Hold: 5000})
	}
}
