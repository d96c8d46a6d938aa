// Package watch follows objects of the API server. Caches are looked up by index and
// caught up with the API server; an Objects notifies subscribers of the next change of
// single objects, for as long as they are subscribed.
package watch
