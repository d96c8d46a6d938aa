package disk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/need"
)

// realValues are values to try of options that take numbers and texts, and what else such a file system needs.
var realValues = map[string][]string{
	"ext -b": {"1024", "2k", "4096"}, "ext -C": {"64k -O bigalloc", "1m -O bigalloc"}, "ext -G": {"16", "256"}, "ext -i": {"1024", "64k", "4194304"},
	"ext -I": {"128", "256", "1k"}, "ext -L": {"data_1.a-b", "0123456789abcdef"}, "ext -m": {"0", "0.5", "1.25", "50"}, "ext -N": {"16", "100000"},
	"ext -E num_backup_sb": {"0 -O sparse_super2,^resize_inode", "1 -O sparse_super2,^resize_inode", "2 -O sparse_super2,^resize_inode"},
	"ext -E resize":        {"10000000"}, "ext -E stride": {"4", "128"}, "ext -E stripe_width": {"8"}, "ext -E stripe-width": {"256"}, "ext -J size": {"4", "64"},
	"ext -E encoding": {"utf8 -O casefold", "utf8-12.1 -O casefold"},

	"ext -O bigalloc": {" -C 64k"}, "ext -O meta_bg": {",^resize_inode"}, "ext -O ^sparse_super": {",^resize_inode"}, "ext -O sparse_super2": {",^resize_inode"},
	"ext -O fast_commit": {",has_journal"}, "ext -O ^extent": {",^64bit"}, "ext -O ^extents": {",^64bit"}, "ext -O metadata_csum_seed": {",metadata_csum"},
	"ext -O uninit_bg": {",^metadata_csum"},

	"xfs -L": {"data_1.a-b", "0123456789ab"}, "xfs -b size": {"1k", "4096", "64k"}, "xfs -d agcount": {"2", "8"}, "xfs -d agsize": {"256m", "1g"},
	"xfs -d cowextsize": {"0", "32"}, "xfs -d extszinherit": {"16"}, "xfs -d sunit": {"128,swidth=512"}, "xfs -d swidth": {"512,sunit=128"},
	"xfs -d su": {"64k,sw=4"}, "xfs -d sw": {"4,su=64k"}, "xfs -d sectsize": {"512", "4k"}, "xfs -i attr": {"2"}, "xfs -i maxpct": {"0", "50", "100"},
	"xfs -i perblock": {"8"}, "xfs -i size": {"512", "1k", "2048"}, "xfs -l size": {"64m", "128m"}, "xfs -l su": {"32k"},
	"xfs -l sunit": {"64"}, "xfs -l version": {"2"}, "xfs -n size": {"8k", "65536"}, "xfs -s size": {"512", "4096"},
	"xfs -i projid32bit": {"1"}, "xfs -i sparse": {"0", "1"}, "xfs -i align": {"1"}, "xfs -l lazy-count": {"1"}, "xfs -n ftype": {"1"}, "xfs -m crc": {"1"},
	"xfs -m finobt": {"1", "0 -m inobtcount=0,rmapbt=0"}, "xfs -m inobtcount": {"0", "1"}, "xfs -d daxinherit": {"0", "1 -m reflink=0"},
}

// examples are options of mkfs with an option, and what else it needs.
func examples(filesystem string, o Option) (texts []string) {
	before, between := strings.TrimSpace(o.Flag+" "+o.Name), " "
	if o.Name != "" {
		between = "="
	}
	given := realValues[filesystem[:3]+" "+before]
	words, isWords := o.takes.(oneOf)
	switch {
	case o.takes == nil:
		return []string{before + strings.Join(given, "")}
	case given == nil && isWords:
		given = words
	}
	for _, value := range given {
		texts = append(texts, before+between+value)
	}
	return texts
}

func TestMkfsTakesEveryOptionThatIsAllowed(t *testing.T) {
	tried := 0
	for _, filesystem := range Filesystems() {
		need.Has(t, need.Program("mkfs."+filesystem))
		image := filepath.Join(t.TempDir(), "image")
		for _, o := range MkfsOptionsOf(filesystem) {
			texts := examples(filesystem, o)
			if len(texts) == 0 {
				t.Errorf("mkfs.%s %s %s has no value to try", filesystem, o.Flag, o.Name)
			}
			for _, text := range texts {
				_ = os.Remove(image)
				if err := os.WriteFile(image, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(image, 2<<30); err != nil {
					t.Fatal(err)
				}
				options, err := ParseMkfsOptions(filesystem, text, AllowedOptions{})
				if err != nil {
					t.Errorf("%s: %v", text, err)
					continue
				}
				force := map[string]string{"xfs": "-f"}[filesystem]
				if force == "" {
					force = "-F"
				}
				words := slices.Concat([]string{force}, options.WithoutDiscard().Words(), []string{image})
				out, err := exec.Command("mkfs."+filesystem, words...).CombinedOutput()
				if err != nil {
					t.Errorf("mkfs.%s %s: %v: %s", filesystem, fmt.Sprint(words), err, strings.SplitN(string(out), "Usage", 2)[0])
				}
				tried++
			}
		}
	}
	t.Logf("%d options tried", tried)
}
