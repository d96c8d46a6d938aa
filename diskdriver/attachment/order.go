package attachment

import (
	"strings"
	"time"
)

// later says whether one of ECS's times is certainly later than another of the same kind; an empty one is that of an event that never
// was. ECS's page says that they are in minutes, and its examples have seconds: a time without seconds, or with none over the minute, is
// taken for one in minutes.
func later(at, than string) bool {
	a, step, ok := parse(at)
	if !ok || than == "" {
		return ok
	}
	b, other, ok := parse(than)
	return ok && a.Sub(b) > max(step, other)
}

// parse returns a time of ECS and its granularity.
func parse(text string) (at time.Time, step time.Duration, ok bool) {
	if strings.Count(text, ":") == 1 {
		text = strings.TrimSuffix(text, "Z") + ":00Z"
	}
	at, err := time.Parse(time.RFC3339, text)
	if at.Second() == 0 {
		return at, time.Minute, err == nil
	}
	return at, time.Second, err == nil
}
