package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

//go:embed static/* templates/*
var files embed.FS

// Options of a [Server]. Source is needed.
type Options struct {
	Source snapshot.Source
	// Addr is the host and the port that the server is reached at, for its URL.
	Addr string
	// Names are the host names by which it may be reached, besides localhost and
	// addresses.
	Names []string
	// Admin allows orders, which are told to come from the user Who.
	Admin bool
	Who   string
	// Long is the wait from which on one stands out; 0: 10 s.
	Long time.Duration
	// Entered, if not nil, is told the next URL when one has been used.
	Entered func(url string)
}

// Server is the page.
type Server struct {
	opts     Options
	base     string // the folder of all pages, with slashes around it
	sessions *sessions
	poll     *poller
	pages    map[string]*template.Template
	static   fs.FS
}

var errSlow = errors.New("the daemon has not answered yet: it is busy, or stopped")

// New makes a server. Its snapshots are taken by [Server.Run].
func New(o Options) (*Server, error) {
	if o.Long == 0 {
		o.Long = 10 * time.Second
	}
	s := &Server{opts: o, base: "/" + rand.Text() + "/", sessions: newSessions(), poll: newPoller(o.Source, o.Long), pages: map[string]*template.Template{}}
	var err error
	if s.static, err = fs.Sub(files, "static"); err != nil {
		return nil, err
	}
	for _, p := range pages {
		t := template.New("").Funcs(functions)
		if s.pages[p.name], err = t.ParseFS(files, "templates/layout.html", "templates/"+p.name+".html"); err != nil {
			return nil, fmt.Errorf("page %s: %w", p.name, err)
		}
	}
	return s, nil
}

// URL opens one browser, once.
func (s *Server) URL() string {
	u := url.URL{Scheme: "http", Host: s.opts.Addr, Path: "/", RawQuery: url.Values{"token": {s.sessions.next()}}.Encode()}
	return u.String()
}

// Run takes snapshots for the pages until ctx ends.
func (s *Server) Run(ctx context.Context) { s.poll.run(ctx) }

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	inner := http.NewServeMux()
	for _, p := range pages {
		if p.make != nil {
			inner.HandleFunc("GET /"+p.path, s.show(p))
		}
	}
	inner.HandleFunc("GET /events", s.events)
	for _, name := range []string{"style.css", "app.js", "icon.svg"} {
		inner.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, s.static, name) })
	}
	inner.HandleFunc("POST /break", s.breakLock)
	inner.HandleFunc("POST /remove", s.removeMember)
	outer := http.NewServeMux()
	outer.Handle(s.base, http.StripPrefix(s.base[:len(s.base)-1], inner))
	return s.guard(outer)
}

// Serve answers on l until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// page is one of the pages: its template, its path below the base, its title,
// and what its template is given.
type page struct {
	name, path, title string
	nav               bool
	make              func(s *Server, r *http.Request, snap *snapshot.Snapshot) (any, error)
}

var pages []page

func init() { // not a literal: the functions refer to it
	pages = []page{
		{"waits", "{$}", "Who waits for whom", true, (*Server).waitsPage},
		{"locks", "locks", "Locks", true, (*Server).locksPage},
		{"files", "files", "Files", true, (*Server).filesPage},
		{"members", "members", "Members", true, (*Server).membersPage},
		{"policy", "policy", "Rules", true, (*Server).policyPage},
		{"journal", "journal", "Journal", true, (*Server).journalPage},
		{"lock", "lock", "A lock", false, (*Server).lockPage},
		{"member", "member", "A member", false, (*Server).memberPage},
		{"done", "", "Done", false, nil},
	}
}

// frame is what every template is given.
type frame struct {
	Title   string
	Page    string
	Pages   []page
	Snap    *snapshot.Snapshot
	Version uint64
	Admin   bool
	CSRF    string
	Long    time.Duration
	Data    any
}

// Name and Path and Nav are for the templates.
func (p page) Name() string  { return p.name }
func (p page) Title() string { return p.title }
func (p page) Nav() bool     { return p.nav }
func (p page) Path() string {
	if p.path == "{$}" {
		return "./"
	}
	return p.path
}

// show answers with a page, or with the part of it that changes.
func (s *Server) show(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		snap, version := s.poll.get(r.Context())
		data, err := p.make(s, r, snap)
		if err != nil {
			s.render(w, r, http.StatusBadGateway, "done", p.title, snap, version, outcome{Failed: true, Lines: []string{err.Error()}})
			return
		}
		s.render(w, r, http.StatusOK, p.name, p.title, snap, version, data)
	}
}

func (s *Server) render(w http.ResponseWriter, r *http.Request, code int, name, title string, snap *snapshot.Snapshot, version uint64, data any) {
	f := frame{Title: title, Page: name, Pages: pages, Snap: snap, Version: version, Admin: s.opts.Admin, CSRF: csrfOf(r.Context()), Long: s.opts.Long, Data: data}
	part := "page"
	if r.Header.Get("X-Fragment") != "" {
		part = "live"
	}
	var b bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&b, part, f); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

// events tells, as it happens, that something has changed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	say := func(text string) error {
		if err := out.SetWriteDeadline(time.Now().Add(eventTime)); err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		return out.Flush()
	}
	_ = s.poll.watch(r.Context(),
		func(version uint64) error { return say(fmt.Sprintf("event: change\ndata: %d\n\n", version)) },
		func() error { return say(": nothing new\n\n") })
}

// eventTime is how long a browser may take to read what it is told. One that is
// stopped must not keep snapshots going for ever.
const eventTime = 30 * time.Second

type csrfKey struct{}

func withCSRF(ctx context.Context, csrf string) context.Context {
	return context.WithValue(ctx, csrfKey{}, csrf)
}

func csrfOf(ctx context.Context) string {
	csrf, _ := ctx.Value(csrfKey{}).(string)
	return csrf
}
