package actions

import (
	"fmt"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// useOf is a request under a token, for the tokens alone.
func useOf(token string, now time.Time) *Request {
	return &Request{Action: byName["CreateDisk"], Now: now, Input: wire.Input{Params: wire.Parameters{"ClientToken": token, "Size": "20"}}}
}

func TestTokensGoWhenTheyExpire(t *testing.T) {
	const life = 8 * time.Hour
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tokens := newTokens(life)
	for i := range 100 {
		now := start.Add(time.Duration(i) * 10 * time.Minute)
		x := useOf(fmt.Sprint(i), now)
		if i%2 == 0 {
			tokens.bind(x, "d-bp100000000000000001", nil, false)
		} else {
			tokens.bind(x, "", wire.Refuse(400, "InvalidParameter", "no"), true)
		}
	}
	end := start.Add(990 * time.Minute)
	for _, tt := range []struct {
		token string
		now   time.Time
		found bool
	}{
		{"98", end, true},
		{"52", start.Add(520*time.Minute + life - time.Nanosecond), true},
		{"52", start.Add(520*time.Minute + life), false},
		{"nobody's", end, false},
	} {
		id, no := tokens.replay(useOf(tt.token, tt.now))
		if no != nil || (id != "") != tt.found {
			t.Errorf("token %s: %q %v, want found %v", tt.token, id, no, tt.found)
		}
	}
	if _, no := tokens.replay(useOf("99", end)); no == nil || no.Code != "InvalidParameter" {
		t.Errorf("token 99: %v, want the refusal", no)
	}
	tokens.expire(end.Add(life + life/agesOfLife))
	if len(tokens.ages) != 0 || len(tokens.refused) != 0 {
		t.Errorf("left are %d ages and %d refusals", len(tokens.ages), len(tokens.refused))
	}
}

func TestTokenBoundAgainKeepsItsRefusal(t *testing.T) {
	const life = 8 * time.Hour
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tokens := newTokens(life)
	tokens.bind(useOf("a", start), "d-bp100000000000000001", nil, false)
	tokens.bind(useOf("a", start.Add(life)), "", wire.Refuse(400, "InvalidParameter", "no"), true)
	if _, no := tokens.replay(useOf("a", start.Add(life+life/agesOfLife))); no == nil {
		t.Error("the refusal went with the older age")
	}
}
