// Package exclusive is what the exclusive algorithms have in common: many
// tickets of one node in front of one lock that nodes hand to each other.
package exclusive
