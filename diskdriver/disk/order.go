package disk

import (
	"strings"
	"time"
)

// Later says whether one of ECS's times is certainly later than another of the same kind; an empty one is that of an event that never
// was. ECS's page says that they are in minutes, and its examples have seconds: a time without seconds, or with none over the minute, is
// taken for one in minutes.
func Later(at, than string) bool {
	a, step, ok := parseTime(at)
	if !ok || than == "" {
		return ok
	}
	b, other, ok := parseTime(than)
	return ok && a.Sub(b) > max(step, other)
}

// parseTime returns a time of ECS and its granularity.
func parseTime(text string) (at time.Time, step time.Duration, ok bool) {
	if strings.Count(text, ":") == 1 {
		text = strings.TrimSuffix(text, "Z") + ":00Z"
	}
	at, err := time.Parse(time.RFC3339, text)
	if at.Second() == 0 {
		return at, time.Minute, err == nil
	}
	return at, time.Second, err == nil
}

// ReleasedBy is when the moment is over at which ECS says that an instance let the disk go last; zero if none did.
func (d Disk) ReleasedBy() time.Time {
	at, step, ok := parseTime(d.Released)
	if !ok {
		return time.Time{}
	}
	return at.Add(step)
}
