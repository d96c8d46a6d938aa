package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Sample is one value of one series.
type Sample struct {
	At     time.Duration `json:"at"`             // since the soak began, in nanoseconds
	Series string        `json:"series"`         // what was measured, and of which program
	Life   string        `json:"life,omitempty"` // the process, which a restart ends; empty for what outlives processes
	Value  float64       `json:"value"`
}

// ReadSamples reads samples as JSON, one a line. A sample without a series, before the beginning or without a finite,
// non-negative value is an error that names its number, counted from 1. Of a last line that is cut short the error is
// io.ErrUnexpectedEOF, with the samples before it.
func ReadSamples(r io.Reader) (samples []Sample, err error) {
	for lines := json.NewDecoder(r); ; {
		var s Sample
		if err := lines.Decode(&s); errors.Is(err, io.EOF) {
			return samples, nil
		} else if err != nil {
			return samples, fmt.Errorf("sample %d: %w", len(samples)+1, err)
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("sample %d: %w", len(samples)+1, err)
		}
		samples = append(samples, s)
	}
}

// WriteSamples writes samples as ReadSamples reads them.
func WriteSamples(w io.Writer, samples []Sample) error {
	lines := json.NewEncoder(w)
	for _, s := range samples {
		if err := errors.Join(s.check(), lines.Encode(s)); err != nil {
			return fmt.Errorf("sample of %q at %v: %w", s.Series, s.At, err)
		}
	}
	return nil
}

func (s Sample) check() error {
	switch {
	case s.Series == "":
		return errors.New(`series is "", want a name`)
	case s.At < 0:
		return fmt.Errorf("at is %v, want 0 or more", s.At)
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || s.Value < 0:
		return fmt.Errorf("value is %v, want a finite number of 0 or more", s.Value)
	}
	return nil
}
