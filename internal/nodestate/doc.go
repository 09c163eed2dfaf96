// Package nodestate is what a node keeps in its state directory of the cluster: its
// membership, the last view, the secrets, and that its daemon is just being replaced.
//
// The daemon writes it, commands read it where there is no daemon. It does not know what
// is done with it. The state directory itself is package statedir's.
package nodestate
