// Package rcv is relative consensus voting.
package rcv
