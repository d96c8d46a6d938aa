package wire

import "time"

// The forms of times in parameters and replies, always UTC.
const (
	MinuteTime = "2006-01-02T15:04Z"
	SecondTime = "2006-01-02T15:04:05Z"
)

// Stamp is a time as replies show it; the zero time is "".
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(SecondTime)
}
