package leader

import "net/http"

// A process that was stopped for a while may go on where it was although another
// leads by now. So nothing that changes anything is begun once the Lease was not
// renewed for too long; the process ends a moment later anyway.

// FenceHTTP lets requests through that change nothing, and others while held
// returns nil.
func FenceHTTP(held func() error, next http.RoundTripper) http.RoundTripper {
	return fencedTripper{held, next}
}

type fencedTripper struct {
	held func() error
	next http.RoundTripper
}

func (f fencedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := f.held(); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}
