package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Files of a run: a JSON object a line, written at once, so that a killed run leaves what it had.
const (
	runFile       = "run.json"
	samplesFile   = "samples.jsonl"
	eventsFile    = "events.jsonl"
	turnsFile     = "turns.jsonl"
	inventoryFile = "inventory.jsonl"
)

// About says what was run, and on what.
type About struct {
	Plan    Plan      `json:"plan"`
	Begin   time.Time `json:"begin"`
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
}

// Event is a fault or a rollout, or the end of the load.
type Event struct {
	At     time.Duration `json:"at"` // since the beginning
	Round  int           `json:"round"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took"`
	Failed string        `json:"failed,omitempty"`
}

// loadEnded is the name of the event that ends the load.
const loadEnded = "the load has ended"

// Turn is one claim of the load from its beginning to its end.
type Turn struct {
	At     time.Duration            `json:"at"` // since the beginning
	Kind   string                   `json:"kind"`
	Name   string                   `json:"name"`
	Waits  map[string]time.Duration `json:"waits"` // by what was waited for
	Failed string                   `json:"failed,omitempty"`
}

// records are the open files of a run.
type records struct {
	dir   string
	mu    sync.Mutex
	files map[string]*os.File
}

func openRecords(dir string) (*records, error) {
	r := &records{dir: dir, files: map[string]*os.File{}}
	for _, name := range []string{samplesFile, eventsFile, turnsFile, inventoryFile} {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		r.files[name] = file
	}
	return r, nil
}

// begins writes down what is run, when the load begins.
func (r *records) begins(about About) error {
	text, err := json.MarshalIndent(about, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, runFile), text, 0o644)
}

// add appends a line to a file.
func (r *records) add(name string, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.files[name].Write(append(text, '\n'))
	return err
}

// samples appends samples.
func (r *records) samples(list []Sample) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return WriteSamples(r.files[samplesFile], list)
}

// readLines reads a file of JSON objects. A last line that is cut short is left out: its run was killed.
func readLines[T any](path string) (list []T, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var one T
		switch err := lines.Decode(&one); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: object %d: %w", path, len(list)+1, err)
		}
		list = append(list, one)
	}
}
