// Package watch follows objects of the API server. Caches hold trimmed copies of all
// objects of the kinds that the provisioner reads often, are looked up by index, and
// catch up with the API server before a new leader begins. An Objects notifies
// subscribers of the next change of single objects, for as long as they are subscribed.
package watch
