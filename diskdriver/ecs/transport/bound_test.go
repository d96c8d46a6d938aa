package transport

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

func TestARepliesLengthIsBounded(t *testing.T) {
	const whole = `{"RequestId":"R","DiskId":"d-1"}`
	for name, test := range map[string]struct {
		body string
		want bool
	}{
		"as long as one may be": {whole + strings.Repeat(" ", longestReply-len(whole)), true},
		"longer":                {whole + strings.Repeat(" ", longestReply-len(whole)+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, Config{RoundTripper: ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
				return ecstest.Answer(r, 200, test.body), nil
			})})
			err := create(t.Context(), s)
			if (err == nil) != test.want || err != nil && (disk.KindOf(err) != disk.UnknownOutcome || !strings.Contains(err.Error(), "longer than 8 MiB")) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestAnErrorOfECSIsOnePrintableLine: what ECS says reaches events, logs and terminals.
func TestAnErrorOfECSIsOnePrintableLine(t *testing.T) {
	const evil = "\x1b[2J\x07\u202e\u009b8m"
	s := newSession(t, Config{RoundTripper: ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
		return ecstest.Answer(r, 403, fmt.Sprintf(`{"Code":"Forbidden.RAM%[1]s","Message":"%[1]s%[2]s","RequestId":"R%[1]s","AccessDeniedDetail":{"AuthAction":"a%[1]s"}}`,
			`\u001b[2J\u0007\u202e\u009b8m`, strings.Repeat("long ", 5000))), nil
	})})
	text := create(t.Context(), s).Error()
	if strings.ContainsAny(text, evil[:1]+"\a\u202e\u009b\n") || len(text) > 2000 || !strings.Contains(text, `\u001b[2J`) {
		t.Errorf("the error has %d bytes: %.300q", len(text), text)
	}
}
