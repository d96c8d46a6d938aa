package disk

import (
	"fmt"
	"strings"
)

// XFSFeatures says which features a new xfs file system has: a kernel mounts
// none with a feature that it doesn't know.
type XFSFeatures string

// The features that can be chosen.
const (
	XFSLTS419 XFSFeatures = "lts_4.19" // those that Linux knows since 4.19
	XFSLatest XFSFeatures = "latest"   // those that mkfs.xfs makes by default
)

// ParseXFSFeatures reads the name of features; none is XFSLTS419. The error
// says what is allowed.
func ParseXFSFeatures(value string) (XFSFeatures, error) {
	switch f := XFSFeatures(value); f {
	case "":
		return XFSLTS419, nil
	case XFSLTS419, XFSLatest:
		return f, nil
	}
	return "", fmt.Errorf("allowed are %s", strings.Join(AllXFSFeatures(), ", "))
}

// AllXFSFeatures returns the names of the features that can be chosen.
func AllXFSFeatures() []string { return []string{string(XFSLTS419), string(XFSLatest)} }
