package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// notebook keeps the rows that were measured, so that the page can be written from runs of some rows each.
type notebook struct{ path string }

// note is one act's rows.
type note struct {
	Commit, Date string
	Rows         []rival
}

func (n notebook) read() (map[string]note, error) {
	notes := map[string]note{}
	data, err := os.ReadFile(n.path)
	if errors.Is(err, os.ErrNotExist) {
		return notes, nil
	}
	if err != nil {
		return nil, err
	}
	return notes, json.Unmarshal(data, &notes)
}

// keep takes an act's rows down in place of those of an earlier run.
func (n notebook) keep(act string, rows []rival) error {
	notes, err := n.read()
	if err != nil {
		return err
	}
	notes[act] = note{Commit: commit(), Date: time.Now().UTC().Format("2006-01-02"), Rows: rows}
	data, err := json.MarshalIndent(notes, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(n.path), 0o755), os.WriteFile(n.path, data, 0o644))
}

// publish writes the provisioner's part of the page, unless rows are missing.
func (n notebook) publish(s scale, page string) error {
	notes, err := n.read()
	if err != nil {
		return err
	}
	var rows []rival
	var missing, commits []string
	for _, name := range actNames() {
		kept, ok := notes[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		rows = append(rows, kept.Rows...)
		if at := kept.Commit + " (" + kept.Date + ")"; !slices.Contains(commits, at) {
			commits = append(commits, at)
		}
	}
	if missing != nil {
		fmt.Printf("%s is not written before all rows were measured; missing: %s\n", page, strings.Join(missing, ","))
		return nil
	}
	d := duel{rows: rows}
	if err := writeSection(page, "provisioner", d.markdown(s, commits)); err != nil {
		return err
	}
	fmt.Println("wrote", page)
	return nil
}

func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}
