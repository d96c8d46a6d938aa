package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// rowKeys are the names of rows on the command line.
func rowKeys[R any](all []R, key func(R) string) (keys []string) {
	for _, row := range all {
		keys = append(keys, key(row))
	}
	return keys
}

// noRows measures nothing: the page is written from the rows that are kept.
const noRows = "none"

// chooseRows returns those of the rows that a list names, separated by commas, in their own order; all for an empty list.
func chooseRows[R any](list string, all []R, key func(R) string) ([]R, error) {
	switch list {
	case "":
		return all, nil
	case noRows:
		return nil, nil
	}
	keys, words := rowKeys(all, key), strings.Split(list, ",")
	for _, word := range words {
		if !slices.Contains(keys, word) {
			return nil, fmt.Errorf("-rows has %q; allowed are %s, and %s alone", word, strings.Join(keys, ","), noRows)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(row R) bool { return !slices.Contains(words, key(row)) }), nil
}

// resultFile keeps the rows that were measured, so that the page can be written from runs of some groups each. It is a part of the
// source: a later run on another machine replaces the groups that it measures.
type resultFile[R any] struct {
	path   string
	commit string // what is measured; taken before the file itself changes
}

// savedGroup are the rows of one group.
type savedGroup[R any] struct {
	Commit, Date string
	Rows         []R
}

func (f resultFile[R]) read() (map[string]savedGroup[R], error) {
	groups := map[string]savedGroup[R]{}
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
func (f resultFile[R]) save(group string, rows []R) error {
	groups, err := f.read()
	if err != nil {
		return err
	}
	groups[group] = savedGroup[R]{Commit: f.commit, Date: time.Now().UTC().Format("2006-01-02"), Rows: rows}
	data, err := json.MarshalIndent(groups, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(f.path), 0o755), os.WriteFile(f.path, data, 0o644))
}

// all returns the rows of all groups, and says which group was measured at which commit; missing are the groups that have no rows.
func (f resultFile[R]) all(names []string) (rows []R, commits, missing []string, err error) {
	groups, err := f.read()
	if err != nil {
		return nil, nil, nil, err
	}
	measured := map[string][]string{} // groups by commit
	for _, name := range names {
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
	for i, at := range commits {
		commits[i] = strings.Join(measured[at], ", ") + " at " + at
	}
	return rows, commits, missing, nil
}

// publish writes a section of the page from the rows of all groups, and names those that were not measured yet.
func (f resultFile[R]) publish(page, section string, names []string, text func(rows []R, commits []string) string) error {
	rows, commits, missing, err := f.all(names)
	if err != nil {
		return err
	}
	content := text(rows, commits)
	if missing != nil {
		content += "- Not measured yet: " + strings.Join(missing, ", ") + ".\n"
	}
	if err := writeSection(page, section, content); err != nil {
		return err
	}
	fmt.Println("wrote", page)
	return nil
}

// commit names the commit of the checkout, and whether something else was measured. The pages and figures that benchmarks write
// don't count.
func commit() string {
	root, err := programs.FindRoot()
	if err != nil {
		return ""
	}
	name, _ := programs.Commit(context.Background(), root, "docs", "test/bench/*.json") // a tree without git has none
	return name
}
