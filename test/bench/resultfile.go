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

// resultFile keeps the rows that were measured, so that the page can be written from runs of some groups each. It is a part of the
// source: a later run on another machine replaces the groups that it measures.
type resultFile struct {
	path   string
	commit string // what is measured; taken before the file itself changes
}

// savedGroup are the rows of one group.
type savedGroup struct {
	Commit, Date string
	Rows         []row
}

func (f resultFile) read() (map[string]savedGroup, error) {
	groups := map[string]savedGroup{}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return groups, nil
	}
	if err != nil {
		return nil, err
	}
	return groups, json.Unmarshal(data, &groups)
}

// save replaces the rows of a group by those of a later run.
func (f resultFile) save(group string, rows []row) error {
	groups, err := f.read()
	if err != nil {
		return err
	}
	groups[group] = savedGroup{Commit: f.commit, Date: time.Now().UTC().Format("2006-01-02"), Rows: rows}
	data, err := json.MarshalIndent(groups, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(f.path), 0o755), os.WriteFile(f.path, data, 0o644))
}

// publish writes the provisioner's part of the page, unless rows are missing.
func (f resultFile) publish(s scale, page string) error {
	groups, err := f.read()
	if err != nil {
		return err
	}
	var rows []row
	var missing []string
	measured := map[string][]string{} // groups by commit
	var commits []string
	for _, name := range groupNames() {
		kept, ok := groups[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		rows = append(rows, kept.Rows...)
		at := kept.Commit + " (" + kept.Date + ")"
		if !slices.Contains(commits, at) {
			commits = append(commits, at)
		}
		measured[at] = append(measured[at], name)
	}
	if missing != nil {
		fmt.Printf("%s is not written before all rows were measured; missing: %s\n", page, strings.Join(missing, ","))
		return nil
	}
	for i, at := range commits {
		commits[i] = strings.Join(measured[at], ", ") + " at " + at
	}
	t := table{rows: rows}
	if err := writeSection(page, "provisioner", t.markdown(s, commits)); err != nil {
		return err
	}
	fmt.Println("wrote", page)
	return nil
}

func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}
