package main

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Plan divides a soak into rounds of equal length with the same load. Rounds at its beginning and its end restart what is
// installed; in those between, at least one process of each kind lives on through the faults around it. A leak shows in a
// long life, or as something that outlives processes.
type Plan struct {
	Round  time.Duration `json:"round"`
	Rounds int           `json:"rounds"`
	First  int           `json:"first"` // rounds with restarts at the beginning
	Last   int           `json:"last"`  // rounds with restarts at the end
}

// fullRound is the length of a round of a soak whose growth is judged, trialRounds how many a shorter one has.
const (
	fullRound   = 8 * time.Minute
	trialRounds = 3
)

// fullPlan is that of a soak whose growth is judged, but for the number of its rounds.
var fullPlan = Plan{Round: fullRound, First: 2, Last: 1}

// A soak takes from minHours to maxHours.
const (
	minHours = 0.1
	maxHours = 168
)

// parseHours is the plan of a soak that takes as long as HOURS says.
func parseHours(text string) (Plan, error) {
	hours, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(hours) || hours < minHours || hours > maxHours {
		return Plan{}, fmt.Errorf("HOURS=%s is not allowed: allowed is a number from %v to %v, such as 2 or 0.2", text, minHours, maxHours)
	}
	length := time.Duration(hours * float64(time.Hour))
	p := fullPlan
	p.Rounds = int(length / fullRound)
	if p.between() < minWindows+2 {
		p = Plan{Round: (length / trialRounds).Round(time.Second), Rounds: trialRounds, First: 1, Last: 1}
	}
	return p, nil
}

// between is how many rounds restart nothing that lives on.
func (p Plan) between() int { return p.Rounds - p.First - p.Last }

// Trial says whether the soak is too short for a verdict about growth.
func (p Plan) Trial() bool { return p.between() < minWindows+2 }

// turns is how many of the turns of a full round there are in each, at least one.
func (p Plan) turns(full int) int { return max(1, full*int(p.Round)/int(fullRound)) }

// Length is that of the whole load.
func (p Plan) Length() time.Duration { return time.Duration(p.Rounds) * p.Round }

// Names of the parts of a soak.
const (
	restartsBefore = "restarts before"
	livingOn       = "living on"
	restartsAfter  = "restarts after"
)

// Part is the part that a round is in.
func (p Plan) Part(round int) string {
	switch {
	case round < p.First:
		return restartsBefore
	case round < p.Rounds-p.Last:
		return livingOn
	default:
		return restartsAfter
	}
}

// PartAt is the part that a time since the beginning is in.
func (p Plan) PartAt(at time.Duration) string { return p.Part(int(at / p.Round)) }
