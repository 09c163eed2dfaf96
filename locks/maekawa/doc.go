// Package maekawa is Maekawa's algorithm: a node asks the members of its
// quorum, and any two quorums have a member in common.
package maekawa
