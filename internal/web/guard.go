package web

import (
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// contentPolicy is what a browser may do for a page: load the style and the script of
// this server, and nothing from elsewhere or from within the page.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guard lets requests through to h that have a session, and come from a page of
// this server or from no page.
func (s *Server) guard(h http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", contentPolicy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		head.Set("Referrer-Policy", "same-origin")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		if !s.knownHost(r) {
			http.Error(w, "this server is not known by that name: use the URL that dmxfs web has printed", http.StatusMisdirectedRequest)
			return
		}
		if err := cross.Check(r); err != nil {
			http.Error(w, "the request comes from a page of another site", http.StatusForbidden)
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token") {
			s.enter(w, r)
			return
		}
		csrf, ok := s.sessions.of(r, time.Now())
		if !ok {
			http.Error(w, "open the URL that dmxfs web has printed last; each opens one browser, once", http.StatusForbidden)
			return
		}
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
			if subtle.ConstantTimeCompare([]byte(r.PostFormValue("csrf")), []byte(csrf)) != 1 {
				http.Error(w, "the form is not of this session: load the page anew", http.StatusForbidden)
				return
			}
		default:
			http.Error(w, "not a method of this page", http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r.WithContext(withCSRF(r.Context(), csrf)))
	})
}

// enter exchanges the one-time token for a session. The answer is a page that
// leads on, not a redirect: a browser that came from a link on another site
// would not send the cookie with that.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	cookie, ok := s.sessions.exchange(r.URL.Query().Get("token"), time.Now())
	if !ok {
		http.Error(w, "that token is not, or no longer, valid: open the URL that dmxfs web has printed last", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: cookie, Path: s.base, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!doctype html><html lang="en"><meta charset="utf-8"><title>dmxfs</title><link rel="icon" href="`+s.base+`icon.svg">`+
		`<meta http-equiv="refresh" content="0;url=`+s.base+`"><p><a href="`+s.base+`">Go on</a>`)
	if s.opts.Entered != nil {
		s.opts.Entered(s.URL())
	}
}

// knownHost reports whether a request is for a name by which this server is to
// be reached: an address cannot be made to mean another server.
func (s *Server) knownHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(s.opts.Names, func(n string) bool { return strings.EqualFold(n, host) })
}
