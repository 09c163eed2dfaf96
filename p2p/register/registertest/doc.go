// Package registertest has a view register in memory, for tests of what relies
// on one: [Store] is its content, which knows how it looked in the past and so
// can show old listings, and [Register] is one client of it, which can be slow,
// hang, fail, and lose replies.
package registertest
