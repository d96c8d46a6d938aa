package ecs

import (
	"fmt"
	"net/http"
	"time"
)

// clockHint is said with the refusal of a wrong time. ECS takes a call that was
// signed up to 15 minutes before or after its own time.
const clockHint = "this machine's clock differs from that of ECS by more than 15 minutes"

// hintOn returns what is said with an error code whose cause lies on this side,
// or "". The reply's own time tells how wrong this machine's clock is.
func hintOn(code string, header http.Header) string {
	hint := hints[code]
	if hint != clockHint {
		return hint
	}
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return hint
	}
	ahead := time.Since(theirs).Round(time.Second)
	switch {
	case ahead > 0:
		return fmt.Sprintf("%s: it is %v fast", hint, ahead)
	case ahead < 0:
		return fmt.Sprintf("%s: it is %v slow", hint, -ahead)
	}
	return hint
}
