package node

import (
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// xfsFeature is an option of mkfs.xfs that switches a feature.
type xfsFeature struct{ flag, name, value string }

// lts419 are the features of Linux 4.19 (xfsprogs, mkfs/lts_4.19.conf). The
// file itself can't be used: mkfs.xfs 6.1 refuses it for nrext64, which stands
// in the wrong section.
var lts419 = []xfsFeature{
	{"-m", "crc", "1"}, {"-m", "finobt", "1"}, {"-m", "bigtime", "0"}, {"-m", "inobtcount", "0"}, {"-m", "reflink", "0"}, {"-m", "rmapbt", "0"},
	{"-i", "sparse", "1"}, {"-i", "nrext64", "0"},
}

// mkfsArgs are the options of mkfs that the volume asks for.
func (u volumeUse) mkfsArgs(fsType string) []string {
	if fsType != "xfs" {
		return u.mkfsWords
	}
	return append(xfsOptions(u.features, u.mkfsWords), u.mkfsWords...)
}

// xfsOptions returns the options of mkfs.xfs for some features, but for those
// that other options name: mkfs.xfs refuses an option that comes twice. What
// names a file of options, or an xfs without checksums, which has none of the
// features, chooses all of them.
func xfsOptions(features disk.XFSFeatures, others []string) []string {
	named := namedFeatures(others)
	if features == disk.XFSLatest || slices.Contains(named, "-c options") || slices.Contains(named, "-m crc") {
		return nil
	}
	var words []string
	for _, flag := range []string{"-m", "-i"} {
		var settings []string
		for _, f := range lts419 {
			if f.flag == flag && !slices.Contains(named, flag+" "+f.name) {
				settings = append(settings, f.name+"="+f.value)
			}
		}
		if len(settings) > 0 {
			words = append(words, flag, strings.Join(settings, ","))
		}
	}
	return words
}

// namedFeatures returns which settings options of mkfs.xfs name, each as its
// flag and its name.
func namedFeatures(options []string) (named []string) {
	for i := 0; i < len(options); i++ {
		word := options[i]
		if !strings.HasPrefix(word, "-") || len(word) < 2 {
			continue
		}
		flag, settings := word[:2], word[2:]
		if settings == "" && i+1 < len(options) {
			i++
			settings = options[i]
		}
		for setting := range strings.SplitSeq(settings, ",") {
			name, _, _ := strings.Cut(setting, "=")
			named = append(named, flag+" "+name)
		}
	}
	return named
}
