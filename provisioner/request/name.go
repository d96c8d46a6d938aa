package request

import (
	"regexp"
	"strings"
)

var notInObjectName = regexp.MustCompile(`[^a-zA-Z0-9-]`)

// ObjectName turns a driver's name into an object name, as csi-provisioner does for its Lease and csi-attacher for its finalizer.
func ObjectName(driver string) string {
	name := notInObjectName.ReplaceAllString(driver, "-")
	if strings.HasSuffix(name, "-") {
		name += "X"
	}
	return name
}

// JournalName begins the names of the ConfigMaps of a driver's journal; a hyphen and a number follow.
func JournalName(driver string) string { return "topodisk-journal-" + ObjectName(driver) }
