package main

import (
	"strings"
	"testing"
	"time"
)

func TestParseHours(t *testing.T) {
	for text, want := range map[string]Plan{
		"2":    {8 * time.Minute, 15, 2, 1},
		"1.5":  {8 * time.Minute, 11, 2, 1},
		"1.4":  {28 * time.Minute, 3, 1, 1},
		"0.15": {3 * time.Minute, 3, 1, 1},
	} {
		if got, err := parseHours(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "two", "0", "-1", "0.05", "169", "NaN", "Inf", "2h", "2,5"} {
		if _, err := parseHours(text); err == nil || !strings.HasPrefix(err.Error(), "HOURS="+text+" is not allowed: ") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestParts(t *testing.T) {
	p, err := parseHours("2")
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range map[int]string{0: restartsBefore, 1: restartsBefore, 2: livingOn, 13: livingOn, 14: restartsAfter, 15: restartsAfter} {
		if got := p.Part(round); got != want {
			t.Errorf("round %d is of %q, want %q", round, got, want)
		}
	}
	if trial := (Plan{Round: 2 * time.Minute}); p.turns(16) != 16 || trial.turns(16) != 4 || trial.turns(1) != 1 {
		t.Errorf("of 16 turns %d are in a full round, want 16; %d in one of two minutes, want 4; of one %d, want 1", p.turns(16), trial.turns(16), trial.turns(1))
	}
	if p.Trial() || p.Length() != 2*time.Hour {
		t.Errorf("two hours: trial %v, length %v", p.Trial(), p.Length())
	}
}
