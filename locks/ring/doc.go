// Package ring is the several-tokens ring: a request travels round all members
// and is the permission when it comes home.
package ring
