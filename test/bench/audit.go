package main

import "github.com/topodisk/topodisk/test/lab/audit"

// requestCounts are the requests that a program has sent to the API server.
type requestCounts struct{ writes, journal, reads, events, leases int }

// count leaves out the lists and watches by which caches are filled, and what a start reads once.
func count(requests []audit.Request, program string) requestCounts {
	var t requestCounts
	for _, r := range requests {
		write := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
		switch resource := r.Object.Resource; {
		case r.Program() != program || resource == "":
		case resource == "events":
			t.events++
		case resource == "leases":
			t.leases++
		case write && resource == "configmaps":
			t.journal++
		case write:
			t.writes++
		case r.Verb == "get" && resource != "configmaps" && resource != "csidrivers":
			t.reads++
		}
	}
	return t
}
