// Package policy says which algorithm serves which file, and what open(2)
// means there. A policy is a list of rules; the first one whose path matches a
// file is the rule of that file, and the read/write algorithm with the
// defaults of the mount serves all others.
//
// All nodes of a cluster run one policy: it is a part of the view. So a policy
// has one canonical text ([Policy.TOML]), and a [Policy.Hash] of that.
//
// # Paths
//
// A path of a rule is relative to the root of the shared directory. In a name,
// `*`, `?`, `[a-z]` and `{a,b}` mean what they mean to a shell (but a leading
// dot is a character like any other). `**` stands between slashes and means
// what it means in gitignore(5): `**/x` is x at any depth, `a/**` is everything
// below a (and not a itself), `a/**/b` is a/b, a/x/b, a/x/y/b and so on.
//
// # Exclusive algorithms
//
// On a path served by one of them every lock of every class is exclusive and
// covers the whole file, and open locks are between processes. Therefore such
// a lock does not give way when it is idle, unless its rule has a yield.
package policy
