// Package docs_test holds the pages for people against what they speak of: links against the files, commands against what
// runs them, and the Chinese pages against the English ones.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// pages are README.md and everything below docs and charts, by its path in the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/zh/*.md", "charts/topodisk/*.md", ".github/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(text)
		}
	}
	if len(texts) < 12 {
		t.Fatalf("only %d pages were found", len(texts))
	}
	return texts
}

// The sections of docs/flags.md are held against the programs by the tests of each; there are no others.
func TestTheFlagsPageHasASectionForEachCommand(t *testing.T) {
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(pages(t)["docs/flags.md"], -1) {
		got = append(got, match[1])
	}
	if want := []string{"disk-driver", "disk-provisioner", "disk-provisioner audit", "disk-provisioner capacity off",
		"disk-provisioner journal list", "disk-provisioner journal show", "disk-provisioner journal end",
		"kubectl topodisk why", "kubectl topodisk audit", "kubectl topodisk plan install", "kubectl topodisk plan takeover",
		"kubectl topodisk plan drain", "kubectl topodisk plan soldout", "kubectl topodisk volumes", "ecs-simulator"}; !slices.Equal(got, want) {
		t.Errorf("docs/flags.md has sections for %q, want %q", got, want)
	}
}

var (
	block  = regexp.MustCompile("(?m)(?:^<!-- (.*) -->\n)?^```sh\n((?s:.*?))^```$")
	target = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	fence  = regexp.MustCompile("(?m)(?:^<!-- (.*) -->\n)?^([ \t>]*)```([a-z]*)\n((?s:.*?))^[ \t>]*```$")
	typed  = regexp.MustCompile(`(?m)^(\$ |(sudo )?(apt-get|curl|docker|git|go|helm|kubectl|make|minisign|skopeo) )`)
)

// runners are the targets whose tests look through these pages for blocks that name them, and run each.
var runners = map[string][]string{
	"chart":        {"docs/*.md"},
	"e2e-install":  {"*.md", "docs/*.md", "docs/zh/*.md", "charts/topodisk/*.md"},
	"test":         {"docs/simulator.md", "docs/ecs-on-a-laptop.md"},
	"test-release": {"docs/release.md"},
}

// runs says whether a target runs a block of a page: that of an English page for its Chinese one, whose commands are the same.
func runs(makeTarget, page, commands string) bool {
	if commands == "make "+makeTarget+"\n" {
		return true
	}
	for english, chinese := range translated {
		if page == chinese {
			page = english
		}
	}
	return slices.ContainsFunc(runners[makeTarget], func(pattern string) bool {
		match, err := filepath.Match(pattern, page)
		return match && err == nil
	})
}

// Every command is run by something that is named, or says what it needs that no test has.
func TestEveryCommandIsRunOrNeedsACloud(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{}
	for _, match := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	for runner := range runners {
		if !slices.Contains(targets, runner) {
			t.Errorf("the Makefile has no target %s that would run blocks of commands", runner)
		}
	}
	seen := 0
	for name, text := range pages(t) {
		for _, match := range block.FindAllStringSubmatch(text, -1) {
			seen++
			by, isRun := strings.CutPrefix(match[1], "run by make ")
			of, prepares := strings.CutPrefix(match[1], "prepares make ")
			switch {
			case isRun && slices.Contains(targets, by) && runs(by, name, match[2]), prepares && slices.Contains(targets, of):
			case match[1] == "needs a cloud", strings.HasPrefix(match[1], "needs a cloud:"):
			default:
				t.Errorf("%s: what runs this is not said, or doesn't run it (%q):\n%s", name, match[1], match[2])
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d blocks of commands were found", seen)
	}
}

// Commands are in no block of another form, which the tests that run them would not see.
func TestCommandsAreInBlocksOfOneForm(t *testing.T) {
	for name, text := range pages(t) {
		for _, match := range fence.FindAllStringSubmatch(text, -1) {
			mark, indent, language, content := match[1], match[2], match[3], match[4]
			switch {
			case indent != "" || !slices.Contains([]string{"", "sh", "yaml", "json", "mermaid"}, language):
				t.Errorf("%s: a block begins with %q: allowed are ```sh, ```yaml, ```json, ```mermaid and ``` at the beginning of the line", name, indent+"```"+language)
			case language == "" && !strings.HasPrefix(mark, "made by make docs-update") && typed.MatchString(content):
				t.Errorf("%s: commands are not in a block of ```sh:\n%s", name, content)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)|src="([^"]+)"`)

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	texts := pages(t)
	for name, text := range texts {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to := match[1] + match[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(to, "#")
			file := name
			if path != "" {
				file = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, to)
				continue
			}
			if target, isPage := texts[file]; anchor != "" && isPage && !slices.Contains(anchors(target), anchor) {
				t.Errorf("%s links to %s, which has no such heading", name, to)
			}
		}
	}
}

// anchors are the headings of a page as links name them.
func anchors(text string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		all = append(all, strings.ReplaceAll(words, " ", "-"))
	}
	return all
}

var role = regexp.MustCompile(`(?:\{\{ \$fullname \}\}-|"component" ")([a-z-]+)`)

// SECURITY.md says what every role is for: one that the chart gains has to be added.
func TestTheSecurityPageHasEveryRole(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "charts/topodisk/templates/rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	roles := role.FindAllStringSubmatch(string(text), -1)
	if len(roles) < 10 {
		t.Errorf("only %d roles were found", len(roles))
	}
	page := pages(t)["SECURITY.md"]
	for _, match := range roles {
		if !strings.Contains(page, "`"+match[1]+"`:") {
			t.Errorf("SECURITY.md doesn't say what the role %s is for", match[1])
		}
	}
}
