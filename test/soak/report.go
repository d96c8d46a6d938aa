package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// result is all that a run has written.
type result struct {
	About
	samples   []Sample
	events    []Event
	turns     []Turn
	inventory []Inventory // before and after the load
}

func readResult(dir string) (r result, err error) {
	text, err := os.ReadFile(filepath.Join(dir, runFile))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r.About); err != nil {
		return r, fmt.Errorf("%s: %w", runFile, err)
	}
	file, err := os.Open(filepath.Join(dir, samplesFile))
	if err != nil {
		return r, err
	}
	defer file.Close()
	var errs [4]error
	r.samples, errs[0] = ReadSamples(file)
	r.events, errs[1] = readLines[Event](filepath.Join(dir, eventsFile))
	r.turns, errs[2] = readLines[Turn](filepath.Join(dir, turnsFile))
	r.inventory, errs[3] = readLines[Inventory](filepath.Join(dir, inventoryFile))
	return r, errors.Join(errs[:]...)
}

// bounds are how long what the load waits for may take, faults and rollouts and all.
var bounds = map[string]time.Duration{}

// report prints what a run has found, and returns an error if it is not as it should be.
func report(root, dir string, write bool) error {
	r, err := readResult(dir)
	if err != nil {
		return err
	}
	_, _ = root, write
	fmt.Println(len(r.samples), len(r.events), len(r.turns), len(r.inventory))
	return nil
}
