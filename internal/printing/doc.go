// Package printing writes what commands tell: tables, JSON and times for people, in
// which nothing makes a terminal do what a name of a file wants.
//
// All commands use it, and the daemon for its log. It does not know what it prints.
package printing
