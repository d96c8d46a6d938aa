// Package watch follows objects of the API server. An Objects notifies subscribers of
// the next change of single objects, for as long as they are subscribed.
package watch
