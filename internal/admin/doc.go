// Package admin is how the commands speak to the daemon of a mount: the JSON
// that they print with --json, and both ends of the control socket.
//
// The keys of the JSON are a contract: none is renamed or removed, and none
// changes its meaning. The socket speaks HTTP, in the state directory, which
// only its owner can enter.
package admin
