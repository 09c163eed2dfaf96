package web

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

// site is a server that a test asks as a browser does.
type site struct {
	*Server
	t      *testing.T
	http   *httptest.Server
	client *http.Client
}

func newSite(t *testing.T, from snapshot.Source, admin bool) *site {
	t.Helper()
	s, err := New(Options{Source: from, Admin: admin, Who: "user root on one"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	h := httptest.NewServer(s.Handler())
	s.opts.Addr = strings.TrimPrefix(h.URL, "http://")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		cancel()
		<-done
	})
	return &site{s, t, h, &http.Client{Jar: jar}}
}

// enter has the client exchange the token.
func (s *site) enter() *site {
	s.t.Helper()
	if code, body := s.ask("GET", s.URL(), nil); code != http.StatusOK {
		s.t.Fatalf("the token is refused: %d %s", code, body)
	}
	return s
}

func (s *site) ask(method, target string, form url.Values, change ...func(*http.Request)) (int, string) {
	s.t.Helper()
	if !strings.HasPrefix(target, "http") {
		target = s.http.URL + target
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, target, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// page is the text of a page below the base.
func (s *site) page(path string) string {
	s.t.Helper()
	code, body := s.ask("GET", s.base+path, nil)
	if code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", path, code, body)
	}
	return body
}

func (s *site) csrf() string {
	s.t.Helper()
	m := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(s.page("member?id=B"))
	if m == nil {
		s.t.Fatal("no CSRF token on the page")
	}
	return m[1]
}
