// Package journalquery is what is asked of journals, and what is answered: the filter as
// the query of a URL, what one member has for it, and what all of them have.
//
// Commands ask so by their daemon, and daemons ask one another. It knows neither.
package journalquery
