package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// recipe is what the Dockerfile says of the image.
type recipe struct {
	goVersion string // such as 1.26.8
	build     string // the line that builds the programs into /out/
	root      string // the line that makes the root file system in /rootfs
	copies    []copied
	labels    map[string]string
	env       []string
	user      string
	command   []string
}

// copied is something of an earlier stage that the image has.
type copied struct{ from, to string }

// parse reads the subset of a Dockerfile's language that this one uses, with values for its arguments. What it doesn't
// know in the last stage is an error: the image would be another one than Docker's.
func parse(text string, args map[string]string) (*recipe, error) {
	r := &recipe{labels: map[string]string{}}
	last := false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case word == "FROM":
			last = rest == "scratch"
			if _, tag, found := strings.Cut(rest, " golang:"); found {
				r.goVersion, _, _ = strings.Cut(tag, "-")
			}
		case word == "RUN" && strings.Contains(rest, "go build"):
			r.build = expand(rest, args)
		case word == "RUN" && strings.Contains(rest, "rootfs.sh"):
			r.root = expand(rest, args)
		case !last || word == "ARG":
		case word == "LABEL":
			key, value, _ := strings.Cut(rest, "=")
			r.labels[key] = strings.Trim(expand(value, args), `"`)
		case word == "ENV":
			r.env = append(r.env, rest)
		case word == "USER":
			r.user = rest
		case word == "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &r.command); err != nil {
				return nil, fmt.Errorf("the Dockerfile's line %q: %w", line, err)
			}
		case word == "COPY" && strings.HasPrefix(rest, "--from="):
			paths := strings.Fields(rest)
			if len(paths) != 3 {
				return nil, fmt.Errorf("the Dockerfile's line %q: allowed is one path from a stage to one place", line)
			}
			r.copies = append(r.copies, copied{from: paths[1], to: paths[2]})
		default:
			return nil, fmt.Errorf("the Dockerfile's line %q is not known to make image", line)
		}
	}
	if r.goVersion == "" || r.build == "" || r.root == "" || len(r.copies) == 0 || len(r.command) == 0 || r.user == "" {
		return nil, fmt.Errorf("the Dockerfile lacks FROM golang, a go build, image/rootfs.sh, COPY --from, USER or ENTRYPOINT")
	}
	return r, nil
}

var argument = regexp.MustCompile(`\$[A-Z]+`)

func expand(text string, args map[string]string) string {
	return argument.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := args[name[1:]]; ok {
			return value
		}
		return name
	})
}

// goBuild and rootfs are the two lines with their places below a directory of this machine.
func (r *recipe) goBuild(work string) string {
	return strings.ReplaceAll(r.build, "/out/", work+"/out/")
}

// rootfs is told, besides, where packages are kept.
func (r *recipe) rootfs(work, packages string) string {
	here, _ := os.Getwd() // "" leaves the path relative, which is the same
	return strings.ReplaceAll(r.root, "/image/rootfs.sh /rootfs", here+"/image/rootfs.sh "+work+"/rootfs") + " " + packages
}
