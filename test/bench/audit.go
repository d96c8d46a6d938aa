package main

import "github.com/topodisk/topodisk/test/lab"

// asked is what a program has asked the API server.
type asked struct{ writes, journal, reads, events, leases int }

// count leaves out the lists and watches by which caches are filled, and what a start reads once.
func count(requests []lab.Request, program string) asked {
	var t asked
	for _, r := range requests {
		write := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
		switch resource := r.Object.Resource; {
		case !r.By(program) || resource == "":
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
