package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// commandBlock is a block of the documentation that says this program runs it.
var commandBlock = regexp.MustCompile("(?m)^<!-- run by make chart -->\n```sh\n((?s:.*?))^```$")

// runCommands runs the commands that the documentation tells people to try on
// a cluster and that change nothing there.
func runCommands(ctx context.Context, kubeconfig, repo string, r *report) error {
	pages, err := filepath.Glob(filepath.Join(repo, "docs/*.md"))
	if err != nil {
		return err
	}
	config, err := filepath.Abs(kubeconfig)
	if err != nil {
		return err
	}
	ran := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		for _, match := range commandBlock.FindAllStringSubmatch(string(text), -1) {
			ran++
			command := exec.CommandContext(ctx, "sh", "-ec", match[1])
			command.Dir, command.Env = repo, append(os.Environ(), "KUBECONFIG="+config)
			output, err := command.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output)
			}
			first, _, _ := strings.Cut(strings.TrimSpace(match[1]), "\n")
			r.add("docs/"+filepath.Base(page), first, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no page of docs has commands for make chart to run")
	}
	return nil
}
