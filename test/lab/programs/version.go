package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Version is a minor version of Kubernetes that labs can run.
type Version string

// Default is what labs run unless they are told otherwise: the newest version.
const Default Version = "1.37"

// Versions are all of them, the oldest first.
var Versions = []Version{"1.33", "1.34", "1.35", "1.36", Default}

// FirstWithAttributesClasses is the first version with VolumeAttributesClass in storage.k8s.io/v1, which is the one that
// csi-resizer reads; earlier ones have it in v1beta1 or not at all.
const FirstWithAttributesClasses Version = "1.34"

// firstWithContainerd2 is the first version whose kubelet doesn't start with containerd 1.6, which is Debian 12's.
const firstWithContainerd2 Version = "1.37"

// AtLeast says whether the version is another one or newer.
func (v Version) AtLeast(other Version) bool {
	return slices.Index(Versions, v) >= slices.Index(Versions, other)
}

// Set and String make a version a flag's value.
func (v *Version) Set(text string) error {
	if !slices.Contains(Versions, Version(text)) {
		return fmt.Errorf("allowed are %s", Allowed())
	}
	*v = Version(text)
	return nil
}

func (v *Version) String() string { return string(*v) }

// Allowed lists the versions for messages.
func Allowed() string {
	var all []string
	for _, v := range Versions {
		all = append(all, string(v))
	}
	return strings.Join(all, ", ")
}

var required = regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v(\S+)$`)

// Release returns the patch release that the version's module pins, such as 1.37.2.
func (v Version) Release(root string) (string, error) {
	path := filepath.Join(v.module(root), "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	found := required.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s does not require k8s.io/kubernetes", path)
	}
	return string(found[1]), nil
}

// module is the directory of the version's module.
func (v Version) module(root string) string {
	return filepath.Join(root, "test", "kube", "v"+string(v))
}

// builtDir is the directory of what is built from the version's module.
func (v Version) builtDir(root string) string {
	dir := filepath.Join(root, ".build")
	if v == Default {
		return dir
	}
	return filepath.Join(dir, "v"+string(v))
}
