package disk

import (
	"fmt"
	"slices"
	"strconv"
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

// lts419 are the features of Linux 4.19 (xfsprogs, mkfs/lts_4.19.conf). The file itself can't be used: mkfs.xfs 6.1 refuses it for
// nrext64, which stands in the wrong section.
var lts419 = []mkfsSetting{
	{"-m", "crc", "1", true}, {"-m", "finobt", "1", true}, {"-m", "bigtime", "0", true}, {"-m", "inobtcount", "0", true},
	{"-m", "reflink", "0", true}, {"-m", "rmapbt", "0", true}, {"-i", "sparse", "1", true}, {"-i", "nrext64", "0", true},
}

// WithFeatures returns options of mkfs.xfs with those of some features added, but for what the options set themselves. An xfs
// without checksums can have none of the features.
func (o MkfsOptions) WithFeatures(features XFSFeatures) MkfsOptions {
	if features == XFSLatest || slices.Contains(o.settings, mkfsSetting{"-m", "crc", "0", true}) {
		return o
	}
	var added []mkfsSetting
	for _, s := range lts419 {
		if !o.has(s.flag, s.name) {
			added = append(added, s)
		}
	}
	o.settings = slices.Concat(added, o.settings)
	return o
}

// WithSectors returns options of mkfs.xfs with the size of sectors that it takes by itself for a disk whose sectors have a physical and a
// logical size in bytes, so that it takes the same for a file. Options that set it, or the size of blocks in another way than in bytes,
// are returned as they are.
func (o MkfsOptions) WithSectors(physical, logical int) MkfsOptions {
	const defaultBlock, largestSector = 4096, 32768
	if slices.ContainsFunc(o.settings, func(s mkfsSetting) bool { return s.flag == "-s" || strings.HasPrefix(s.name, "sect") }) {
		return o
	}
	block, size := defaultBlock, physical
	for _, s := range o.settings {
		if s.flag != "-b" {
			continue
		}
		var err error
		if block, err = strconv.Atoi(s.value); err != nil || s.name != "size" {
			return o
		}
	}
	if physical > largestSector || block < physical && block >= logical {
		size = logical
	}
	o.settings = slices.Clone(o.settings)
	o.set(mkfsSetting{"-s", "size", strconv.Itoa(size), true})
	return o
}
