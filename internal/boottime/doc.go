// Package boottime is the clock by which all that matters is measured: time since the
// host was booted, also while it was suspended, which nobody can set.
package boottime
