// Package chronicle puts what happens to a node into its journal and its log, counts it,
// and remembers what is shown of it: who went, which data is damaged. It has the words for
// that: what a view calls a member, the state of a node.
//
// The parts of a daemon tell it, as do those who give orders. It knows the words of
// membership, locks and the mount, and nothing of who has a lock, or why.
package chronicle
