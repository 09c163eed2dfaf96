// Package rules has the policy of the view in force on a node: which algorithm serves a
// path, what open(2) means there, and whether a file may be moved. It describes rules for
// admins.
//
// The engine and the mount ask it, the membership tells it of views. What a policy is
// package policy knows; who is told when it changes is given to it.
package rules
