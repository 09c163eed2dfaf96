// Package daemon is the process that serves a mount: it opens what it needs in an order in
// which all that can fail comes before other nodes hear of it, joins the cluster, mounts,
// answers admins on the control socket and other daemons, and ends in order.
//
// It is where the parts meet that do not know one another: [fusefs], the engine, the
// membership, the network and the journal say what they need as interfaces of their own,
// and adapt.go gives them to each other.
//
// The program runs it as a hidden command ([Serve], or [Resume] after an upgrade), under a
// watcher (package supervise). It knows no other command: what those ask is in package
// admin.
package daemon
