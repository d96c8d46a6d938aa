package faults

import (
	"encoding/json"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// plainFault is a Fault without its methods.
type plainFault Fault

// faultForm is a Fault in JSON: its durations as time.Duration prints them.
type faultForm struct {
	plainFault
	From        string `json:"from,omitempty"`
	For         string `json:"for,omitempty"`
	DelayBefore string `json:"delayBefore,omitempty"`
	DelayAfter  string `json:"delayAfter,omitempty"`
	Lag         string `json:"lag,omitempty"`
	Skew        string `json:"skew,omitempty"`
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
	form := faultForm{plainFault: plainFault(f)}
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
	read := Fault(form.plainFault)
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
