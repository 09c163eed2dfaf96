package metrics

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MaxPaths bounds how many paths are shown.
const MaxPaths = 100

// Handler shows metrics over HTTP, in the format that the client asks for.
type Handler struct {
	Set *Set
	// Look takes a snapshot.
	Look func() Snapshot
	// Name is the name of a FUSE request, empty for one that is not served.
	Name func(opcode uint32) string
	// Paths lists the files that requests of this host wait for. Nil: nobody is told
	// of paths. Otherwise those with the most waits are shown to who asks, by ?paths=N.
	Paths func() []PathCount
}

// Registry has the metrics of this moment.
func (h *Handler) registry(paths int) (*prometheus.Registry, error) {
	c := &collector{set: h.Set, now: h.Look(), names: h.Name}
	if paths > 0 {
		c.paths = top(h.Paths(), paths)
	}
	r := prometheus.NewRegistry()
	for _, x := range []prometheus.Collector{c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := r.Register(x); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := h.wanted(r.FormValue("paths"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reg, err := h.registry(n)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
}

// wanted is how many paths are asked for.
func (h *Handler) wanted(v string) (int, error) {
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	switch {
	case err != nil || n < 0 || n > MaxPaths:
		return 0, fmt.Errorf("paths=%s: must be a number up to %d", v, MaxPaths)
	case n > 0 && h.Paths == nil:
		return 0, fmt.Errorf("paths are not shown here: ask on the host, by dmxfs metrics --paths %d", n)
	}
	return n, nil
}

// top are the n of all with the most waits. People read this in a terminal, so names
// are told as they are printed elsewhere; what is no UTF-8 is no label, too.
func top(all []PathCount, n int) []PathCount {
	type key struct{ path, class string }
	sums := map[key]int{}
	for _, p := range all {
		sums[key{printable(p.Path), p.Class}] += p.Waiting
	}
	out := make([]PathCount, 0, len(sums))
	for k, w := range sums {
		out = append(out, PathCount{k.path, k.class, w})
	}
	slices.SortFunc(out, func(a, b PathCount) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Path, b.Path), strings.Compare(a.Class, b.Class))
	})
	return out[:min(n, len(out))]
}

// printable is a name in which whatever terminals obey is spelt out.
func printable(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return name
	}
	q := strconv.Quote(name)
	return q[1 : len(q)-1]
}

// MaxClients bounds the connections that a [Listener] has at a time.
const MaxClients = 32

// Listener is l with at most [MaxClients] connections, beyond which others wait: whoever
// reaches the address must not use up the descriptors and the memory of the daemon.
func Listener(l net.Listener) net.Listener {
	return &limited{Listener: l, room: make(chan struct{}, MaxClients), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	room   chan struct{} // has one for each connection
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &client{Conn: c, left: sync.OnceFunc(func() { <-l.room })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// client is a connection that gives back its room.
type client struct {
	net.Conn
	left func()
}

func (c *client) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// Server serves h at /metrics and nothing else. No client holds it up for long.
func Server(h http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", http.MaxBytesHandler(h, 1<<10))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
