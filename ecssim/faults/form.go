package faults

import (
	"encoding/json"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// faultForm is a Fault in JSON.
type faultForm struct {
	ID          int               `json:"id"`
	Action      string            `json:"action"`
	Params      map[string]string `json:"params,omitempty"`
	Agent       string            `json:"agent,omitempty"`
	Skip        int               `json:"skip"`
	Count       int               `json:"count"`
	Percent     int               `json:"percent,omitempty"`
	From        string            `json:"from,omitempty"` // durations as time.Duration prints them
	For         string            `json:"for,omitempty"`
	Do          string            `json:"do"`
	Status      int               `json:"status,omitempty"`
	Code        string            `json:"code,omitempty"`
	Message     string            `json:"message,omitempty"`
	DelayBefore string            `json:"delayBefore,omitempty"`
	DelayAfter  string            `json:"delayAfter,omitempty"`
	Lag         string            `json:"lag,omitempty"`
	Hide        []string          `json:"hide,omitempty"`
	Skew        string            `json:"skew,omitempty"`
	Seen        int               `json:"seen"`
	Hit         int               `json:"hit"`
}

// spans pairs the durations of a fault with their form.
func (form *faultForm) spans(f *Fault) []spelledSpan {
	return []spelledSpan{
		{"from", &form.From, &f.From}, {"for", &form.For, &f.For}, {"delayBefore", &form.DelayBefore, &f.DelayBefore},
		{"delayAfter", &form.DelayAfter, &f.DelayAfter}, {"lag", &form.Lag, &f.Lag},
	}
}

// spelledSpan is a duration and its text.
type spelledSpan struct {
	name  string
	text  *string
	value *time.Duration
}

// MarshalJSON writes the fault in the form that the admin API takes: names in
// lower camel case, durations such as "1.5s".
func (f Fault) MarshalJSON() ([]byte, error) {
	form := faultForm{
		ID: f.ID, Action: f.Action, Params: f.Params, Agent: f.Agent, Skip: f.Skip, Count: f.Count, Percent: f.Percent, Do: f.Do,
		Status: f.Status, Code: f.Code, Message: f.Message, Hide: f.Hide, Seen: f.Seen, Hit: f.Hit,
	}
	for _, s := range form.spans(&f) {
		if *s.value != 0 {
			*s.text = s.value.String()
		}
	}
	if f.Skew != 0 {
		form.Skew = f.Skew.String()
	}
	return json.Marshal(form)
}

// UnmarshalJSON reads the form that MarshalJSON writes, and refuses unknown
// names and wrong values with a *ConfigError.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var form faultForm
	if err := config.Decode(text, &form); err != nil {
		return err
	}
	read := Fault{
		ID: form.ID, Action: form.Action, Params: form.Params, Agent: form.Agent, Skip: form.Skip, Count: form.Count, Percent: form.Percent, Do: form.Do,
		Status: form.Status, Code: form.Code, Message: form.Message, Hide: form.Hide, Seen: form.Seen, Hit: form.Hit,
	}
	for _, s := range form.spans(&read) {
		var err error
		if *s.value, err = config.Duration(s.name, *s.text); err != nil {
			return err
		}
	}
	if form.Skew != "" {
		var err error
		if read.Skew, err = time.ParseDuration(form.Skew); err != nil {
			return config.Invalid("skew", form.Skew, `a duration with its unit, such as "-20m"`)
		}
	}
	*f = read
	return nil
}
