// Package ask is how commands ask the daemon of a mount: which one, for how long, about the
// whole cluster, and what they say when there is none to ask. [View] asks what a page or a
// terminal shows.
//
// It knows the control socket (package admin) and who watches a mount (package supervise),
// and nothing of what runs in a daemon.
package ask
