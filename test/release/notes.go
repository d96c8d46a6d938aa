package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// changelog is what a release's notes are made from.
const changelog = "CHANGELOG.md"

var (
	versionHeading = regexp.MustCompile(`(?m)^## \[(\S+)\] - \d{4}-\d{2}-\d{2}\n`)
	sectionEnd     = regexp.MustCompile(`(?m)^(## |\[\S+\]: )`)
	relativeLink   = regexp.MustCompile(`\]\(([^)#:]+)((?:#[^)]*)?)\)`)
)

// notesOf returns what the changelog says of a version. Links lead to the pages as they are at the version's tag.
func notesOf(text, version string) (string, error) {
	var others []string
	for _, at := range versionHeading.FindAllStringSubmatchIndex(text, -1) {
		name, body := text[at[2]:at[3]], text[at[1]:]
		if name != version {
			others = append(others, name)
			continue
		}
		if end := sectionEnd.FindStringIndex(body); end != nil {
			body = body[:end[0]]
		}
		if body = strings.TrimSpace(body); body == "" {
			return "", fmt.Errorf("VERSION=%q: the section of %s is empty: allowed is one that says what changed", version, changelog)
		}
		return relativeLink.ReplaceAllString(body, "]("+repository+"/blob/v"+version+"/$1$2)") + "\n", nil
	}
	return "", fmt.Errorf("VERSION=%q: allowed is a version with a section in %s, such as \"## [%s] - 2026-01-31\"; it has %q",
		version, changelog, version, others)
}

// readNotes reads the notes of the release's version.
func (r *release) readNotes() (err error) {
	text, err := os.ReadFile(changelog)
	if err != nil {
		return fmt.Errorf("run this at the root of the repository: %w", err)
	}
	r.notes, err = notesOf(string(text), r.version)
	return err
}

// addNotes writes the notes as Markdown, which a tag's message can be as well.
func (r *release) addNotes(context.Context) error {
	return os.WriteFile(filepath.Join(r.dist, "topodisk-"+r.version+".notes.md"), []byte(r.notes), 0o644)
}
