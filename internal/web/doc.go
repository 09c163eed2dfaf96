// Package web is the page of `dmxfs web`: who waits for whom, locks, members,
// rules, the journal, in a browser, live. It asks a [snapshot.Source] and keeps
// nothing.
//
// # Who may see it
//
// Who has the one-time token of the URL that the command prints gets a session:
// a cookie that scripts cannot read and that other sites' pages do not send.
// All pages are below a folder with a random name, and the cookie is for that
// only: cookies do not know ports, so that a server of another user on the same
// host would be sent it otherwise. Without a session nothing is answered but
// 403. The Host header must be an address or a known name, so that a page of
// another site cannot reach this one by a name of its own (DNS rebinding).
//
// Orders (to break a lock, to remove a member) need [Options.Admin], a reason,
// and the CSRF token of the session, and go the way that the commands go.
//
// # How it is made
//
// Pages are rendered here, whole, and work without a script. The script fetches
// the part of a page that changes when the server says, by server-sent events,
// that something has. Names of files and programs, and texts of other hosts, are
// anybody's: html/template escapes them, and [snapshot.Printable] shows what cannot be
// seen.
package web
