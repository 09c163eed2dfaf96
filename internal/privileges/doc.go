// Package privileges starts a daemon, or what tries its storage, without the capabilities
// that it does not need. It does not know what it starts.
package privileges
