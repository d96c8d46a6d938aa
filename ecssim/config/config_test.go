package config

import (
	"errors"
	"testing"
	"time"
)

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	type common struct {
		Name string        `json:"name"`
		Span time.Duration `json:"-"`
	}
	type body struct {
		common
		Count int `json:"count,omitempty"`
	}
	for _, tt := range []struct{ text, field, allowed string }{
		{`{"name":"a","count":1}`, "", ""},
		{`{"nam":"a"}`, "field", "one of name, count"},
		{`{"count":"a"}`, "count", "a int"},
		{`{} {}`, "body", "one JSON object and nothing after it"},
	} {
		var got body
		err := Decode([]byte(tt.text), &got)
		var wrong *Error
		if (err != nil) != (tt.field != "") || err != nil && (!errors.As(err, &wrong) || wrong.Field != tt.field || wrong.Allowed != tt.allowed) {
			t.Errorf("%s: error %v, want %s: %s", tt.text, err, tt.field, tt.allowed)
		}
	}
}

func TestDurationHasItsUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "1.5s": 1500 * time.Millisecond} {
		if got, err := Duration("lag", text); got != want || err != nil {
			t.Errorf("%q is %v, error %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"5", "-1s"} {
		if _, err := Duration("lag", text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
